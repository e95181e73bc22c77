import com.fasterxml.jackson.databind.ObjectMapper;
import io.delta.kernel.DataWriteContext;
import io.delta.kernel.Operation;
import io.delta.kernel.Scan;
import io.delta.kernel.Snapshot;
import io.delta.kernel.Transaction;
import io.delta.kernel.data.ColumnVector;
import io.delta.kernel.data.ColumnarBatch;
import io.delta.kernel.data.FilteredColumnarBatch;
import io.delta.kernel.data.Row;
import io.delta.kernel.defaults.engine.DefaultEngine;
import io.delta.kernel.defaults.internal.data.DefaultColumnarBatch;
import io.delta.kernel.defaults.internal.data.vector.DefaultGenericVector;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.internal.InternalScanFileUtils;
import io.delta.kernel.internal.data.ScanStateRow;
import io.delta.kernel.internal.util.Utils;
import io.delta.kernel.types.LongType;
import io.delta.kernel.types.StructType;
import io.delta.kernel.unitycatalog.UCCatalogManagedClient;
import io.delta.kernel.unitycatalog.UCTableIdentifier;
import io.delta.kernel.utils.CloseableIterable;
import io.delta.kernel.utils.CloseableIterator;
import io.delta.kernel.utils.DataFileStatus;
import io.delta.storage.commit.TableIdentifier;
import io.delta.storage.commit.uccommitcoordinator.UCClient;
import io.delta.storage.commit.uccommitcoordinator.UCDeltaModels;
import io.delta.storage.commit.uccommitcoordinator.UCDeltaTokenBasedRestClient;
import io.delta.storage.commit.uccommitcoordinator.UCTokenBasedRestClient;
import io.unitycatalog.client.ApiClient;
import io.unitycatalog.client.ApiClientBuilder;
import io.unitycatalog.client.api.TablesApi;
import io.unitycatalog.client.auth.TokenProvider;
import io.unitycatalog.client.model.CreateStagingTable;
import io.unitycatalog.client.model.StagingTableInfo;
import io.unitycatalog.client.model.TableInfo;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;

/**
 * Delta Kernel with its client of Unity Catalog, driven by lines.
 *
 * <p>Arguments: url, token, catalog, schema, and the dialect, which is {@code v1} or {@code legacy}.
 * Each line of input is a command, each line of output its answer as JSON. A snapshot is kept under
 * the name that {@code open} gives it, so two of them stand for two writers. Tables have the one
 * column {@code id}.
 */
public class KernelClient {
  private static final String ENGINE = "inver-tests";
  private static final StructType SCHEMA = new StructType().add("id", LongType.LONG);

  private final String catalog;
  private final String schema;
  private final UCDeltaTokenBasedRestClient delta;
  private final TablesApi tables;
  private final UCCatalogManagedClient client;
  private final Engine engine = DefaultEngine.create(new Configuration());
  private final Map<String, Snapshot> snapshots = new HashMap<>();

  private KernelClient(String url, String token, String catalog, String schema, String dialect) {
    this.catalog = catalog;
    this.schema = schema;
    TokenProvider provider = TokenProvider.create(Map.of("type", "static", "token", token));
    ApiClient api = ApiClientBuilder.create().uri(url).tokenProvider(provider).build();
    tables = new TablesApi(api);
    boolean legacy = dialect.equals("legacy");
    delta =
        legacy
            ? null
            : new UCDeltaTokenBasedRestClient(
                Map.of("uri", url, "auth.type", "static", "auth.token", token), null);
    UCClient rest = legacy ? new UCTokenBasedRestClient(url, provider, Map.of()) : delta;
    client = new UCCatalogManagedClient(rest);
  }

  public static void main(String[] given) throws Exception {
    KernelClient kernel = new KernelClient(given[0], given[1], given[2], given[3], given[4]);
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    ObjectMapper json = new ObjectMapper();
    String line;
    while ((line = input.readLine()) != null) {
      Map<String, Object> answer = new HashMap<>();
      try {
        answer.put("answer", kernel.run(line.split(" ")));
      } catch (Throwable error) {
        answer.put("error", error.getClass().getSimpleName());
        answer.put("message", String.valueOf(error.getMessage()));
        error.printStackTrace();
      }
      System.out.println(json.writeValueAsString(answer));
      System.out.flush();
    }
  }

  private Object run(String[] words) throws Exception {
    switch (words[0]) {
      case "create": // create TABLE
        return create(words[1]);
      case "open": // open SNAPSHOT TABLE [VERSION]
        Optional<Long> version =
            words.length > 3 ? Optional.of(Long.parseLong(words[3])) : Optional.empty();
        snapshots.put(words[1], load(words[2], version));
        return snapshots.get(words[1]).getVersion();
      case "insert": // insert SNAPSHOT FIRST COUNT RETRIES
        return insert(
            snapshots.get(words[1]),
            Long.parseLong(words[2]),
            Integer.parseInt(words[3]),
            Integer.parseInt(words[4]));
      case "set": // set SNAPSHOT KEY VALUE
        return snapshots
            .get(words[1])
            .buildUpdateTableTransaction(ENGINE, Operation.MANUAL_UPDATE)
            .withTablePropertiesAdded(Map.of(words[2], words[3]))
            .build(engine)
            .commit(engine, CloseableIterable.emptyIterable())
            .getVersion();
      case "read": // read SNAPSHOT
        return read(snapshots.get(words[1]));
      case "properties": // properties SNAPSHOT
        return snapshots.get(words[1]).getTableProperties();
      case "publish": // publish SNAPSHOT
        snapshots.put(words[1], snapshots.get(words[1]).publish(engine));
        return snapshots.get(words[1]).getVersion();
      case "checkpoint": // checkpoint SNAPSHOT
        snapshots.get(words[1]).writeCheckpoint(engine);
        return null;
      default:
        throw new IllegalArgumentException(words[0]);
    }
  }

  private Map<String, String> create(String name) throws Exception {
    String id;
    String location;
    Map<String, String> properties = new HashMap<>();
    if (delta == null) {
      StagingTableInfo staged =
          tables.createStagingTable(
              new CreateStagingTable().name(name).catalogName(catalog).schemaName(schema));
      id = staged.getId();
      location = staged.getStagingLocation();
      properties.put("delta.feature.vacuumProtocolCheck", "supported");
    } else {
      UCDeltaModels.StagingTableInfo staged =
          delta.createStagingTable(new TableIdentifier(catalog, schema, name));
      id = staged.getTableId().toString();
      location = staged.getLocation();
      for (String feature : staged.getRequiredProtocol().getWriterFeatures()) {
        properties.put("delta.feature." + feature, "supported");
      }
      properties.putAll(staged.getRequiredProperties());
    }
    client
        .buildCreateTableTransaction(id, location, SCHEMA, ENGINE, identifier(name))
        .withTableProperties(properties)
        .build(engine)
        .commit(engine, CloseableIterable.emptyIterable());
    return Map.of("id", id, "location", location);
  }

  private UCTableIdentifier identifier(String name) {
    return new UCTableIdentifier(catalog, schema, name);
  }

  private Snapshot load(String name, Optional<Long> version) throws Exception {
    String id;
    String location;
    if (delta == null) {
      TableInfo info = tables.getTable(catalog + "." + schema + "." + name, false, false);
      id = info.getTableId();
      location = info.getStorageLocation();
    } else {
      UCDeltaModels.TableInfo info = delta.loadTable(new TableIdentifier(catalog, schema, name));
      id = info.getTableId().toString();
      location = info.getLocation();
    }
    return client.loadSnapshot(engine, id, location, identifier(name), version, Optional.empty());
  }

  private long insert(Snapshot snapshot, long first, int count, int retries) throws Exception {
    Transaction transaction =
        snapshot
            .buildUpdateTableTransaction(ENGINE, Operation.WRITE)
            .withMaxRetries(retries)
            .build(engine);
    Row state = transaction.getTransactionState(engine);
    Object[] ids = new Object[count];
    for (int i = 0; i < count; i++) {
      ids[i] = first + i;
    }
    ColumnVector[] vectors = {DefaultGenericVector.fromArray(LongType.LONG, ids)};
    FilteredColumnarBatch batch =
        new FilteredColumnarBatch(
            new DefaultColumnarBatch(count, SCHEMA, vectors), Optional.empty());
    DataWriteContext context = Transaction.getWriteContext(engine, state, Collections.emptyMap());
    CloseableIterator<FilteredColumnarBatch> physical =
        Transaction.transformLogicalData(
            engine, state, Utils.singletonCloseableIterator(batch), Collections.emptyMap());
    CloseableIterator<DataFileStatus> files =
        engine
            .getParquetHandler()
            .writeParquetFiles(
                context.getTargetDirectory(), physical, context.getStatisticsColumns());
    return transaction
        .commit(
            engine,
            CloseableIterable.inMemoryIterable(
                Transaction.generateAppendActions(engine, state, files, context)))
        .getVersion();
  }

  private List<Long> read(Snapshot snapshot) throws Exception {
    Scan scan = snapshot.getScanBuilder().build();
    Row state = scan.getScanState(engine);
    StructType columns = ScanStateRow.getPhysicalDataReadSchema(state);
    List<Long> ids = new ArrayList<>();
    for (FilteredColumnarBatch found : scan.getScanFiles(engine).toInMemoryList()) {
      for (Row file : found.getRows().toInMemoryList()) {
        CloseableIterator<ColumnarBatch> data =
            engine
                .getParquetHandler()
                .readParquetFiles(
                    Utils.singletonCloseableIterator(InternalScanFileUtils.getAddFileStatus(file)),
                    columns,
                    Optional.empty())
                .map(result -> result.getData());
        for (FilteredColumnarBatch rows :
            Scan.transformPhysicalData(engine, state, file, data).toInMemoryList()) {
          for (Row row : rows.getRows().toInMemoryList()) {
            ids.add(row.getLong(0));
          }
        }
      }
    }
    Collections.sort(ids);
    return ids;
  }
}
