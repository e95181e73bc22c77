import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectMethod;

import java.io.PrintWriter;
import java.nio.file.Path;
import java.util.List;
import org.apache.iceberg.rest.RESTCompatibilityKitCatalogTests;
import org.apache.iceberg.rest.RESTCompatibilityKitViewCatalogTests;
import org.junit.platform.engine.DiscoverySelector;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;
import org.junit.platform.reporting.legacy.xml.LegacyXmlReportGeneratingListener;

/**
 * Iceberg's REST compatibility kit as it is published, and what it never runs by itself: its tests
 * of nested namespaces and of names with slashes.
 *
 * <p>Arguments: a folder for JUnit's reports, and what the warehouses of the latter are called, each
 * followed by the name of its test, since a test leaves its warehouse in use. System properties configure the client.
 */
public class CompatibilityKit {
  private static final List<String> MORE =
      List.of(
          "testDropNamespaceWithNestedNamespace",
          "testNamespaceWithSlash",
          "testTableNameWithSlash",
          "testListNestedNamespaces");

  private CompatibilityKit() {}

  public static void main(String[] given) {
    Path reports = Path.of(given[0]);
    run(
        reports.resolve("kit"),
        selectClass(RESTCompatibilityKitCatalogTests.class),
        selectClass(RESTCompatibilityKitViewCatalogTests.class));
    for (String test : MORE) {
      System.setProperty("warehouse", given[1] + test);
      run(reports.resolve("more").resolve(test), selectMethod(More.class, test));
    }
    // Pools of the client would keep the process alive.
    System.exit(0);
  }

  private static void run(Path report, DiscoverySelector... selectors) {
    LauncherDiscoveryRequest request =
        LauncherDiscoveryRequestBuilder.request()
            .selectors(selectors)
            .configurationParameter("rck.local", "false")
            .build();
    PrintWriter errors = new PrintWriter(System.err, true);
    LauncherFactory.create()
        .execute(request, new LegacyXmlReportGeneratingListener(report, errors));
  }

  public static class More extends RESTCompatibilityKitCatalogTests {
    @Override
    protected boolean supportsNestedNamespaces() {
      return true;
    }

    @Override
    protected boolean supportsNamesWithSlashes() {
      return true;
    }
  }
}
