import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import java.util.stream.Stream;
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
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * A Kafka Streams application: `StreamsApplication CONFIGURATIONS TOPOLOGY INSTANCES INPUT... OUTPUT`.
 *
 * Topologies: `words` counts words, with a repartition topic and a store; it fails at the line `poison`, and waits for
 * five seconds at `sleep 5`. `join` joins a stream with a table, and counts also by windows; `keep` keeps the newest
 * value of each key; `filter` keeps no state; `global` joins a stream with a global table. With one instance the program
 * ends with it; of several each is started again. Lines on its standard input: `tasks` prints as a line of JSON what the
 * client itself says of its tasks and stores; `produce` and `pause` let it write into its input. It ends with that input.
 * A configuration `1.client.tag.zone` is that of the second instance. Runs with the clients of Kafka 2.8 and later.
 */
public final class StreamsApplication {
    private static final List<KafkaStreams> INSTANCES = new ArrayList<>();
    private static volatile boolean isProducing = false;

    public static void main(String[] arguments) throws Exception {
        var configurations = new Properties();
        try (var opened = Files.newInputStream(Path.of(arguments[0]))) {
            configurations.load(opened);
        }
        var topics = List.of(arguments).subList(3, arguments.length);
        var count = Integer.parseInt(arguments[2]);
        for (int number = 0; number < count; number++) {
            INSTANCES.add(start(configurations, arguments[1], topics, number));
        }
        daemon(StreamsApplication::obey);
        daemon(() -> produce(configurations.getProperty("bootstrap.servers"), topics.subList(0, topics.size() - 1)));
        while (true) {
            Thread.sleep(200);
            for (int number = 0; number < count; number++) {
                if (List.of("NOT_RUNNING", "ERROR").contains(INSTANCES.get(number).state().name())) {
                    if (count == 1) {
                        System.exit(1);
                    }
                    System.out.println("starting instance " + number + " again");
                    INSTANCES.get(number).close();
                    INSTANCES.set(number, start(configurations, arguments[1], topics, number));
                }
            }
        }
    }

    private static KafkaStreams start(Properties configurations, String topology, List<String> topics, int number) {
        var own = new Properties();
        own.putAll(configurations);
        own.setProperty("state.dir", configurations.getProperty("state.dir") + number);
        for (var name : configurations.stringPropertyNames()) {
            if (name.startsWith(number + ".")) {
                own.setProperty(name.substring(name.indexOf('.') + 1), configurations.getProperty(name));
            }
        }
        var streams = new KafkaStreams(topology(topology, topics), own);
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("instance " + number + ": " + error);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        return streams;
    }

    private static Topology topology(String name, List<String> topics) {
        var text = Serdes.String();
        var builder = new StreamsBuilder();
        var input = builder.stream(topics.get(0), Consumed.with(text, text));
        switch (name) {
            case "words" -> write(input.flatMapValues(StreamsApplication::words)
                .groupBy((key, word) -> word, Grouped.with("words", text, text))
                .count(Materialized.as("counted"))
                .toStream().mapValues(String::valueOf), topics);
            case "join" -> {
                var table = builder.table(topics.get(1), Consumed.with(text, text), Materialized.as("customers"));
                var joined = input.join(table, (order, region) -> region, Joined.with(text, text, text))
                    .groupBy((customer, region) -> region, Grouped.with("by-region", text, text));
                joined.windowedBy((TimeWindows) call(TimeWindows.class, null, "ofSizeWithNoGrace|of", Duration.ofMinutes(1)))
                    .count(Materialized.as("ordered-by-minute"));
                write(joined.count(Materialized.as("ordered")).toStream().mapValues(String::valueOf), topics);
            }
            case "keep" -> write(input.toTable(Materialized.as("kept")).toStream().mapValues(value -> "kept"), topics);
            default -> write(input.filter((key, value) -> !value.isEmpty()), topics);
        }
        return builder.build();
    }

    private static void write(KStream<String, String> stream, List<String> topics) {
        stream.to(topics.get(topics.size() - 1), Produced.with(Serdes.String(), Serdes.String()));
    }

    private static List<String> words(String line) {
        if (line.equals("poison")) {
            throw new IllegalStateException("a poisoned record");
        }
        if (line.startsWith("sleep ")) {
            System.out.println(line);
            sleep(Long.parseLong(line.substring(6)));
        }
        return List.of(line.split(" "));
    }

    private static void sleep(long seconds) {
        try {
            Thread.sleep(1000 * seconds);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static void obey() throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (var line = lines.readLine(); line != null; line = lines.readLine()) {
            switch (line) {
                case "tasks" -> System.out.println("tasks: [" + INSTANCES.stream().map(StreamsApplication::describe)
                    .collect(Collectors.joining(",")) + "]");
                case "produce", "pause" -> isProducing = line.equals("produce");
                default -> System.out.println("not understood: " + line);
            }
        }
        INSTANCES.forEach(one -> one.close(Duration.ofSeconds(5)));
        System.exit(0);
    }

    private static String describe(KafkaStreams streams) {
        var found = (Collection<?>) call(KafkaStreams.class, streams, "metadataForLocalThreads|localThreadsMetadata");
        var threads = found.stream().map(one -> "{\"name\":\"%s\",\"state\":\"%s\",\"active\":%s,\"standby\":%s}".formatted(
            get(one, "threadName"), get(one, "threadState"), tasks(get(one, "activeTasks")), tasks(get(one, "standbyTasks"))));
        var lags = streams.allLocalStorePartitionLags().entrySet().stream().flatMap(store -> store.getValue().entrySet()
            .stream().map(one -> "{\"store\":\"%s\",\"partition\":%d,\"position\":%d,\"end\":%d}".formatted(store.getKey(),
                one.getKey(), one.getValue().currentOffsetPosition(), one.getValue().endOffsetPosition())));
        return "{\"state\":\"%s\",\"threads\":[%s],\"lags\":[%s]}".formatted(streams.state(),
            threads.collect(Collectors.joining(",")), lags.collect(Collectors.joining(",")));
    }

    private static String tasks(Object tasks) {
        return ((Collection<?>) tasks).stream().map(one -> "\"" + get(one, "taskId") + "\"").sorted()
            .collect(Collectors.joining(",", "[", "]"));
    }

    private static Object get(Object of, String name) {
        return call(of.getClass(), of, name);
    }

    /** Calls the first method that the release has; names are separated by `|`. */
    private static Object call(Class<?> type, Object of, String names, Object... arguments) {
        var types = Stream.of(arguments).map(Object::getClass).toArray(Class<?>[]::new);
        for (var name : names.split("[|]")) {
            try {
                return type.getMethod(name, types).invoke(of, arguments);
            } catch (NoSuchMethodException error) {
                continue;
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException(error);
            }
        }
        throw new IllegalStateException(type + " has no method " + names);
    }

    private static void produce(String servers, List<String> topics) throws Exception {
        var settings = Map.<String, Object>of("bootstrap.servers", servers, "delivery.timeout.ms", 10_000,
            "request.timeout.ms", 3_000, "max.block.ms", 3_000, "linger.ms", 0);
        long number = 0;
        while (true) {
            if (!isProducing) {
                Thread.sleep(100);
                continue;
            }
            try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                while (isProducing) {
                    var key = "customer-" + number++ % 16;
                    for (var topic : topics) {
                        producer.send(new ProducerRecord<>(topic, key, "region-" + number % 3));
                    }
                    Thread.sleep(200);
                }
            } catch (RuntimeException error) {
                System.out.println("producer: " + error);
            }
        }
    }

    private interface Work {
        void run() throws Exception;
    }

    private static void daemon(Work work) {
        var thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception error) {
                error.printStackTrace();
                System.exit(2);
            }
        });
        thread.setDaemon(true);
        thread.start();
    }
}
