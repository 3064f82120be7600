import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Compacts the log in each directory that is named on standard input, all of it but the active
 * segment, and answers with nanoseconds by the wall clock and of this thread's CPU time, records
 * read, records kept and bytes kept. The map of keys has the memory that is said in the arguments.
 */
public class CompactLog {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final long END_OF_LOG = 1L << 40; // recovery points: all is on the disk
    private static final int BUFFER_BYTES = 512 * 1024; // log.cleaner.io.buffer.size
    private static final int BUFFER_BYTES_MAX = 1024 * 1024 + 12; // max.message.bytes
    private static final double LOAD_FACTOR = 0.9;

    public static void main(String[] arguments) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        BrokerTopicStats statistics = new BrokerTopicStats();
        ProducerStateManagerConfig producers = new ProducerStateManagerConfig(86_400_000, false);
        LogDirFailureChannel failures = new LogDirFailureChannel(1);
        LogConfig config = new LogConfig(Map.of(
                "cleanup.policy", "compact", "segment.bytes", arguments[1]));
        Throttler throttler = new Throttler(
                Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM);
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(Integer.parseInt(arguments[0])),
                BUFFER_BYTES, BUFFER_BYTES_MAX, LOAD_FACTOR, throttler, Time.SYSTEM,
                ignored -> { });
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            UnifiedLog log = UnifiedLog.create(new File(line), config, 0L, END_OF_LOG, scheduler,
                    statistics, Time.SYSTEM, 300_000, producers, 600_000, failures, true,
                    Optional.empty());
            long end = log.activeSegment().baseOffset();
            long begun = System.nanoTime();
            long begunCpu = THREADS.getCurrentThreadCpuTime();
            CleanerStats found = cleaner.clean(new LogToClean(log, 0L, end, false)).getValue();
            long elapsed = System.nanoTime() - begun;
            long cpu = THREADS.getCurrentThreadCpuTime() - begunCpu;
            System.out.println(elapsed + " " + cpu + " " + found.messagesRead() + " "
                    + found.messagesWritten() + " " + found.bytesWritten());
            log.closeHandlers();
        }
        Runtime.getRuntime().halt(0);
    }
}
