import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** Java's own client with its defaults: it asks for HTTP/2 by an Upgrade header. */
public class Client {
    public static void main(String[] words) throws Exception {
        String body = "{\"model\": \"minilm\", \"input\": \"a red fox\"}";
        HttpClient client = HttpClient.newHttpClient();
        for (int k = 0; k < 2; k++) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(words[0] + "/v1/embeddings"))
                .header("content-type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(body)).build();
            HttpResponse<String> reply = client.send(request, HttpResponse.BodyHandlers.ofString());
            if (reply.statusCode() != 200 || !reply.body().contains("\"embedding\"")) {
                System.out.println(reply.statusCode() + " " + reply.body());
                System.exit(1);
            }
        }
    }
}
