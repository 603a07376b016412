import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Two instances of an application with a join and stores, started again whenever one ends, and a producer of what they
 * read, which writes while the file `produce` beside the configurations exists. The argument is the file of these.
 */
public final class Application {
    public static void main(String[] arguments) throws Exception {
        var file = Path.of(arguments[0]);
        var configurations = new Properties();
        try (var opened = Files.newInputStream(file)) {
            configurations.load(opened);
        }
        var instances = new ArrayList<KafkaStreams>(List.of(start(configurations, 0), start(configurations, 1)));
        Runtime.getRuntime().addShutdownHook(new Thread(() ->
            instances.forEach(one -> one.close(Duration.ofSeconds(5)))));
        new Thread(() -> produce(configurations.getProperty("bootstrap.servers"), file.resolveSibling("produce"))).start();
        while (true) {
            Thread.sleep(500);
            for (int number = 0; number < instances.size(); number++) {
                if (instances.get(number).state().hasCompletedShutdown()) {
                    System.out.println("starting instance " + number + " again");
                    instances.get(number).close();
                    instances.set(number, start(configurations, number));
                }
            }
        }
    }

    private static KafkaStreams start(Properties configurations, int number) {
        var own = new Properties();
        own.putAll(configurations);
        own.setProperty("state.dir", configurations.getProperty("state.dir") + number);
        own.setProperty("client.id", "instance-" + number);
        var streams = new KafkaStreams(topology(), own);
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("instance " + number + ": " + error);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        return streams;
    }

    private static Topology topology() {
        var text = Serdes.String();
        var builder = new StreamsBuilder();
        var customers = builder.table("customers", Consumed.with(text, text), Materialized.as("customers-store"));
        var orders = builder.stream("orders", Consumed.with(text, text));
        orders.join(customers, (order, region) -> region, Joined.with(text, text, text))
            .groupBy((customer, region) -> region, Grouped.with("by-region", text, text))
            .count(Materialized.as("ordered-by-region"))
            .toStream()
            .to("ordered", Produced.with(text, Serdes.Long()));
        return builder.build();
    }

    private static void produce(String servers, Path flag) {
        var settings = Map.<String, Object>of("bootstrap.servers", servers, "delivery.timeout.ms", 10_000,
            "request.timeout.ms", 3_000, "max.block.ms", 3_000, "linger.ms", 0);
        long number = 0;
        while (true) {
            try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                while (true) {
                    if (Files.exists(flag)) {
                        var key = "customer-" + number++ % 16;
                        for (var topic : List.of("customers", "orders")) {
                            producer.send(new ProducerRecord<>(topic, key, "region-" + number % 3));
                        }
                    }
                    Thread.sleep(200);
                }
            } catch (Exception error) {
                System.out.println("producer: " + error);
            }
        }
    }
}
