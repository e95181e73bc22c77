import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.compression.gzip.GzipCompression;
import org.eclipse.jetty.compression.server.CompressionHandler;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * Iceberg's reference of the REST catalog on SQLite, put together as its own main does, but on
 * loopback and with a database that survives its end.
 *
 * <p>Arguments: a folder, and a file that names the port once the server answers.
 */
public class ReferenceServer {
  private ReferenceServer() {}

  public static void main(String[] given) throws Exception {
    Path home = Path.of(given[0]);
    Map<String, String> properties =
        Map.of(
            "catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri",
                "jdbc:sqlite:"
                    + home.resolve("catalog.db")
                    + "?journal_mode=WAL&synchronous=FULL&busy_timeout=30000",
            "jdbc.schema-version", "V1",
            "warehouse", home.resolve("warehouse").toString());
    Catalog catalog =
        CatalogUtil.buildIcebergCatalog("reference", properties, new Configuration());

    ServletContextHandler context =
        new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    context.addServlet(
        new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    CompressionHandler compression = new CompressionHandler();
    compression.putCompression(new GzipCompression());
    context.insertHandler(compression);

    Server server = new Server();
    ServerConnector connector = new ServerConnector(server);
    connector.setHost("127.0.0.1");
    server.addConnector(connector);
    server.setHandler(context);
    server.start();

    // In one step, so that whoever sees the file sees all of it.
    Path ready = Path.of(given[1]);
    Path written = ready.resolveSibling(ready.getFileName() + ".new");
    Files.writeString(written, String.valueOf(connector.getLocalPort()));
    Files.move(written, ready);
    server.join();
  }
}
