import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** Page views, joined with the region of each user and counted by region. The argument is a file of configurations. */
public final class JoinExample {
    public static void main(String[] arguments) throws Exception {
        var configurations = new Properties();
        try (var file = Files.newInputStream(Path.of(arguments[0]))) {
            configurations.load(file);
        }
        var text = Serdes.String();
        var builder = new StreamsBuilder();
        var regions = builder.table("user-regions", Consumed.with(text, text), Materialized.as("regions"));
        builder.stream("page-views", Consumed.with(text, text))
            .join(regions, (page, region) -> region, Joined.with(text, text, text))
            .groupBy((user, region) -> region, Grouped.with("by-region", text, text))
            .count(Materialized.as("views"))
            .toStream()
            .to("views-by-region", Produced.with(text, Serdes.Long()));
        var streams = new KafkaStreams(builder.build(), configurations);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
