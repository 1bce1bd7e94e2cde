import java.util.HashMap;

/** A service in Java: it fills a cache, serves from it, and drops parts of it. */
public class Work {
    public static void main(String[] arguments) throws InterruptedException {
        HashMap<String, String> cache = new HashMap<>();
        for (int i = 0; ; i++) {
            cache.put("key" + i % 200000, "value " + i + " " + Math.random());
            if (i > 400000) {
                Thread.sleep(1);
            }
        }
    }
}
