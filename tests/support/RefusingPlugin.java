import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.coordinator.group.api.streams.StreamsGroupTopologyDescription;
import org.apache.kafka.coordinator.group.api.streams.StreamsTopologyDescriptionPermanentFailureException;
import org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin;

/**
 * A plugin of a broker: as Kafka's, but it refuses the descriptions of some groups for good, by files next to its
 * directory of logs: `refused-GROUP`.
 */
public final class RefusingPlugin extends InMemoryTopologyDescriptionPlugin {
    private Path directory;

    @Override
    public void configure(Map<String, ?> configurations) {
        super.configure(configurations);
        directory = Path.of(String.valueOf(configurations.get("log.dirs"))).toAbsolutePath().getParent();
    }

    @Override
    public CompletableFuture<Void> setTopology(String group, int epoch, StreamsGroupTopologyDescription description) {
        if (Files.exists(directory.resolve("refused-" + group))) {
            return CompletableFuture.failedFuture(
                new StreamsTopologyDescriptionPermanentFailureException("the description is too large"));
        }
        return super.setTopology(group, epoch, description);
    }
}
