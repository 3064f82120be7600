import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.RandomAccessFile;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Opens every partition of a data directory that was closed in order, as a broker does, once for
 * each line on standard input, and answers with nanoseconds by the wall clock and of this thread's
 * CPU time, descriptors and mappings. Afterwards the files are as they were, so that the next round
 * finds the same.
 */
public class OpenLogs {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final long END_OF_LOG = 1L << 40; // recovery points: all is on the disk

    public static void main(String[] arguments) throws IOException {
        File[] directories = new File(arguments[0]).listFiles(File::isDirectory);
        Arrays.sort(directories);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        BrokerTopicStats statistics = new BrokerTopicStats();
        ProducerStateManagerConfig producers = new ProducerStateManagerConfig(86_400_000, false);
        LogDirFailureChannel failures = new LogDirFailureChannel(1);
        LogConfig config = new LogConfig(Map.of());
        Map<Path, Long> sizes = sizes(directories);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        while (input.readLine() != null) {
            List<UnifiedLog> logs = new ArrayList<>(directories.length);
            long descriptors = count("/proc/self/fd");
            long mappings = mappings();
            long begun = System.nanoTime();
            long begunCpu = THREADS.getCurrentThreadCpuTime();
            for (File directory : directories) {
                logs.add(UnifiedLog.create(directory, config, 0L, END_OF_LOG, scheduler,
                        statistics, Time.SYSTEM, 300_000, producers, 600_000, failures, true,
                        Optional.empty()));
            }
            long elapsed = System.nanoTime() - begun;
            long cpu = THREADS.getCurrentThreadCpuTime() - begunCpu;
            System.out.println(elapsed + " " + cpu + " "
                    + (count("/proc/self/fd") - descriptors) + " " + (mappings() - mappings));
            for (UnifiedLog log : logs) {
                log.closeHandlers();
            }
            restore(sizes, directories);
        }
        Runtime.getRuntime().halt(0);
    }

    private static long count(String directory) throws IOException {
        try (Stream<Path> names = Files.list(Path.of(directory))) {
            return names.count();
        }
    }

    private static long mappings() throws IOException {
        return Files.readAllLines(Path.of("/proc/self/maps")).size();
    }

    private static Map<Path, Long> sizes(File[] directories) {
        Map<Path, Long> found = new TreeMap<>();
        for (File directory : directories) {
            for (File file : directory.listFiles()) {
                found.put(file.toPath(), file.length());
            }
        }
        return found;
    }

    private static void restore(Map<Path, Long> before, File[] directories) throws IOException {
        for (Path path : sizes(directories).keySet()) {
            Long size = before.get(path);
            if (size == null) {
                Files.delete(path);
            } else if (size != Files.size(path)) {
                try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw")) {
                    file.setLength(size);
                }
            }
        }
    }
}
