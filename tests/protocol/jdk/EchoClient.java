import java.io.ByteArrayInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Arrays;

/** Sends bodies with the JDK's own client, in its default settings, and checks that they come back. */
public final class EchoClient {
    private static final int[] SIZES = {0, 1, 100_000, 17};

    private final HttpClient client = HttpClient.newHttpClient();
    private final URI uri;

    private EchoClient(String uri) {
        this.uri = URI.create(uri);
    }

    public static void main(String[] arguments) throws Exception {
        EchoClient echo = new EchoClient(arguments[0]);
        for (int round = 0; round < 20; round++) {
            byte[] body = body(SIZES[round % SIZES.length], round);
            echo.check("POST", body, BodyPublishers.ofByteArray(body));
        }
        byte[] body = body(1000, 3);
        echo.check("GET", body, BodyPublishers.ofByteArray(body));
        for (int size : SIZES) {
            byte[] streamed = body(size, 7);
            echo.check("POST", streamed, BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(streamed)));
        }
        System.out.println("all bodies came back");
    }

    private void check(String method, byte[] body, BodyPublisher publisher) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(uri).method(method, publisher).build();
        HttpResponse<byte[]> response = client.send(request, BodyHandlers.ofByteArray());
        if (response.statusCode() != 200 || response.version() != HttpClient.Version.HTTP_1_1) {
            throw new AssertionError(method + ": " + response.statusCode() + " " + response.version());
        }
        if (!Arrays.equals(response.body(), body)) {
            throw new AssertionError(method + ": sent " + body.length + ", got " + response.body().length);
        }
    }

    private static byte[] body(int size, int seed) {
        byte[] body = new byte[size];
        for (int i = 0; i < size; i++) {
            body[i] = (byte) ('a' + (i * 7 + seed) % 26);
        }
        return body;
    }
}
