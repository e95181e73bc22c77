import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.iceberg.rest.ErrorHandlers;
import org.apache.iceberg.rest.HTTPClient;
import org.apache.iceberg.rest.RESTClient;
import org.apache.iceberg.rest.auth.AuthConfig;
import org.apache.iceberg.rest.auth.AuthSession;
import org.apache.iceberg.rest.auth.OAuth2Util;
import org.apache.iceberg.rest.responses.ConfigResponse;
import org.apache.iceberg.util.Pair;

/** Gets a token by a credential, renews it as a session does shortly before its end, and uses the new one. */
class TokenRenewal {
  public static void main(String[] args) {
    String uri = args[0];
    String warehouse = args[1];
    String credential = args[2];
    RESTClient client =
        HTTPClient.builder(Map.of()).uri(uri).withAuthSession(AuthSession.EMPTY).build();
    AuthConfig config =
        AuthConfig.builder()
            .credential(credential)
            .scope("catalog")
            .oauth2ServerUri("v1/oauth/tokens")
            .build();
    OAuth2Util.AuthSession session =
        OAuth2Util.AuthSession.fromCredential(
            client, null, credential, new OAuth2Util.AuthSession(Map.of(), config));
    String first = session.token();
    Pair<Integer, TimeUnit> valid = session.refresh(client);
    if (valid == null || first.equals(session.token())) {
      throw new IllegalStateException("the token was not renewed");
    }
    client
        .withAuthSession(session)
        .get(
            "v1/config",
            Map.of("warehouse", warehouse),
            ConfigResponse.class,
            Map.of(),
            ErrorHandlers.configErrorHandler());
    System.out.println("renewed for " + valid.first() + " " + valid.second());
  }
}
