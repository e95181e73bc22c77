import com.fasterxml.jackson.annotation.JsonAutoDetect;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.iceberg.MetadataUpdate;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.SortOrder;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableMetadataParser;
import org.apache.iceberg.UpdateRequirement;
import org.apache.iceberg.rest.RESTSerializers;
import org.apache.iceberg.rest.requests.CreateTableRequest;
import org.apache.iceberg.rest.requests.CreateViewRequest;
import org.apache.iceberg.rest.requests.CreateViewRequestParser;
import org.apache.iceberg.rest.requests.UpdateTableRequest;
import org.apache.iceberg.rest.requests.UpdateTableRequestParser;
import org.apache.iceberg.view.ImmutableViewVersion;
import org.apache.iceberg.view.ViewMetadata;
import org.apache.iceberg.view.ViewMetadataParser;

/**
 * What Iceberg's own builders of metadata make of a request, driven by lines.
 *
 * <p>Each line is an object: {@code op}, the {@code request} as a client sends it, and for a commit
 * the {@code base} metadata and the {@code location} of its file, for a creation the {@code
 * location} of the table or view. The answer is the new metadata, null if nothing has changed, or
 * the exception, which metadata that is broken is too. The steps are those of the reference's CatalogHandlers.
 */
public class MetadataOracle {
  private static final ObjectMapper JSON = new ObjectMapper();

  static {
    JSON.setPropertyNamingStrategy(new PropertyNamingStrategies.KebabCaseStrategy());
    JSON.setVisibility(
        JSON.getVisibilityChecker().withFieldVisibility(JsonAutoDetect.Visibility.ANY));
    RESTSerializers.registerAll(JSON);
  }

  private MetadataOracle() {}

  public static void main(String[] given) throws Exception {
    BufferedReader input =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    String line;
    while ((line = input.readLine()) != null) {
      ObjectNode answer = JSON.createObjectNode();
      try {
        String metadata = run(JSON.readTree(line));
        answer.set("answer", metadata == null ? JSON.nullNode() : JSON.readTree(metadata));
      } catch (Exception error) {
        answer.put("error", error.getClass().getSimpleName());
        answer.put("message", String.valueOf(error.getMessage()));
      }
      output.println(JSON.writeValueAsString(answer));
    }
  }

  private static String run(JsonNode line) throws Exception {
    JsonNode request = line.get("request");
    String location = line.path("location").asText(null);
    switch (line.get("op").asText()) {
      case "create-table":
        return createTable(JSON.treeToValue(request, CreateTableRequest.class), location);
      case "commit-table":
        return commitTable(line.get("base"), location, UpdateTableRequestParser.fromJson(request));
      case "create-view":
        return createView(CreateViewRequestParser.fromJson(request), location);
      case "commit-view":
        return commitView(line.get("base"), location, UpdateTableRequestParser.fromJson(request));
      default:
        throw new UnsupportedOperationException(line.get("op").asText());
    }
  }

  private static String createTable(CreateTableRequest request, String location) {
    request.validate();
    PartitionSpec spec = request.spec();
    SortOrder order = request.writeOrder();
    return TableMetadataParser.toJson(
        TableMetadata.newTableMetadata(
            request.schema(),
            spec != null ? spec : PartitionSpec.unpartitioned(),
            order != null ? order : SortOrder.unsorted(),
            location,
            new HashMap<>(request.properties())));
  }

  private static String commitTable(JsonNode base, String location, UpdateTableRequest request) {
    boolean create =
        request.requirements().stream()
            .anyMatch(UpdateRequirement.AssertTableDoesNotExist.class::isInstance);
    TableMetadata current =
        base == null || base.isNull() ? null : TableMetadataParser.fromJson(location, base);
    request.requirements().forEach(requirement -> requirement.validate(current));
    TableMetadata.Builder builder = create ? empty(request) : TableMetadata.buildFrom(current);
    request.updates().forEach(update -> update.applyTo(builder));
    TableMetadata made = builder.build();
    return made.changes().isEmpty() ? null : sound(TableMetadataParser.toJson(made));
  }

  /** The builder lets some metadata pass that nobody can use, such as one without its own spec. */
  private static String sound(String metadata) {
    TableMetadata read = TableMetadataParser.fromJson(metadata);
    if (read.schema() == null || read.spec() == null || read.sortOrder() == null) {
      throw new IllegalStateException("made metadata that is broken");
    }
    return metadata;
  }

  private static TableMetadata.Builder empty(UpdateTableRequest request) {
    Optional<Integer> version =
        request.updates().stream()
            .filter(MetadataUpdate.UpgradeFormatVersion.class::isInstance)
            .map(update -> ((MetadataUpdate.UpgradeFormatVersion) update).formatVersion())
            .findFirst();
    return version.map(TableMetadata::buildFromEmpty).orElseGet(TableMetadata::buildFromEmpty);
  }

  private static String createView(CreateViewRequest request, String location) {
    Map<String, String> properties = new HashMap<>(request.properties());
    return ViewMetadataParser.toJson(
        ViewMetadata.builder()
            .setProperties(properties)
            .setLocation(location)
            .setCurrentVersion(
                ImmutableViewVersion.builder().from(request.viewVersion()).versionId(1).build(),
                request.schema())
            .build());
  }

  private static String commitView(JsonNode base, String location, UpdateTableRequest request) {
    ViewMetadata current = ViewMetadataParser.fromJson(location, base);
    request.requirements().forEach(requirement -> requirement.validate(current));
    ViewMetadata.Builder builder = ViewMetadata.buildFrom(current);
    request.updates().forEach(update -> update.applyTo(builder));
    ViewMetadata made = builder.build();
    return made.changes().isEmpty() ? null : ViewMetadataParser.toJson(made);
  }
}
