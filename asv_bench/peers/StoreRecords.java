import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Decodes, encodes, appends, reads and recovers with Kafka's own classes, as each line on standard
 * input asks, and answers with nanoseconds by the wall clock and of this thread's CPU time, and a
 * count that shows that the work was done. Opening and closing a log are counted only where that is
 * what is asked for.
 */
public class StoreRecords {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final long END_OF_LOG = 1L << 40; // a recovery point: all is on the disk

    private final KafkaScheduler scheduler = new KafkaScheduler(1);
    private final BrokerTopicStats statistics = new BrokerTopicStats();
    private final LogConfig config = new LogConfig(Map.of("max.message.bytes", 16 << 20));
    private MemoryRecords data;
    private List<MemoryRecords> batches;
    private List<SimpleRecord> records;
    private UnifiedLog log;

    private interface Work {
        long run() throws IOException;
    }

    public static void main(String[] arguments) throws IOException {
        StoreRecords store = new StoreRecords();
        store.scheduler.startup();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(store.answer(line.split(" ")));
        }
        Runtime.getRuntime().halt(0);
    }

    private String answer(String[] words) throws IOException {
        switch (words[0]) {
            case "load":
                return load(Path.of(words[1]));
            case "decode":
                return timed(this::decode);
            case "encode":
                return timed(() -> encode(ByteBuffer.allocate(Integer.parseInt(words[1])), null));
            case "leader":
                ByteBuffer buffer = ByteBuffer.allocate(Integer.parseInt(words[2]));
                return onNewLog(words[1], made -> encode(buffer, made));
            case "follower":
                return onNewLog(words[1], this::replicate);
            case "single":
                return onNewLog(words[1], made -> appendEach(made, 1, false));
            case "durable":
                int group = Integer.parseInt(words[2]);
                return onNewLog(words[1], made -> appendEach(made, group, true));
            case "open":
                return timed(() -> open(words[1]));
            case "read":
                LongBuffer offsets = numbers(words[1]);
                return timed(() -> read(offsets));
            case "get":
                LongBuffer wanted = numbers(words[1]);
                return timed(() -> get(wanted));
            case "find":
                LongBuffer timestamps = numbers(words[1]);
                return timed(() -> find(timestamps));
            case "recover":
                return recover(words[1]);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static String timed(Work work) throws IOException {
        long begun = System.nanoTime();
        long begunCpu = THREADS.getCurrentThreadCpuTime();
        long count = work.run();
        long elapsed = System.nanoTime() - begun;
        return elapsed + " " + (THREADS.getCurrentThreadCpuTime() - begunCpu) + " " + count;
    }

    private UnifiedLog create(String directory, long recoveryPoint, boolean clean)
            throws IOException {
        return UnifiedLog.create(new File(directory), config, 0L, recoveryPoint, scheduler,
                statistics, Time.SYSTEM, 300_000, new ProducerStateManagerConfig(86_400_000, false),
                600_000, new LogDirFailureChannel(1), clean, Optional.empty());
    }

    /** Closes a log, and waits for what it has left to the scheduler to write. */
    private void letGo(UnifiedLog done) {
        done.closeHandlers();
        CountDownLatch idle = new CountDownLatch(1);
        scheduler.scheduleOnce("idle", idle::countDown);
        try {
            idle.await();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private interface LogWork {
        long run(UnifiedLog log) throws IOException;
    }

    private String onNewLog(String directory, LogWork work) throws IOException {
        Files.createDirectories(Path.of(directory));
        UnifiedLog made = create(directory, 0L, true);
        String answer = timed(() -> work.run(made));
        letGo(made);
        return answer;
    }

    /** Takes the batches of a file, and the records in them as arrays. */
    private String load(Path path) throws IOException {
        ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(path));
        data = MemoryRecords.readableRecords(bytes);
        batches = new ArrayList<>();
        records = new ArrayList<>();
        int position = 0;
        for (MutableRecordBatch batch : data.batches()) {
            ByteBuffer slice = bytes.slice(position, batch.sizeInBytes());
            batches.add(MemoryRecords.readableRecords(slice));
            position += batch.sizeInBytes();
            for (Record record : batch) {
                records.add(new SimpleRecord(record.timestamp(), Utils.toArray(record.key()),
                        Utils.toArray(record.value())));
            }
        }
        return "0 0 " + records.size();
    }

    /** Checks every batch, and touches key and value of every record. */
    private long decode() {
        long seen = 0;
        for (MutableRecordBatch batch : data.batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                seen += record.key().remaining() + record.value().remaining();
            }
        }
        return seen;
    }

    private static MemoryRecordsBuilder builder(ByteBuffer buffer) {
        buffer.clear();
        return MemoryRecords.builder(buffer, Compression.NONE, TimestampType.CREATE_TIME, 0L);
    }

    /** Packs the records in batches as large as the buffer; appends them where there is a log. */
    private long encode(ByteBuffer buffer, UnifiedLog target) throws IOException {
        long bytes = 0;
        MemoryRecordsBuilder builder = builder(buffer);
        for (SimpleRecord record : records) {
            if (!builder.hasRoomFor(record.timestamp(), record.key(), record.value(),
                    Record.EMPTY_HEADERS)) {
                bytes += finish(builder, target);
                builder = builder(buffer);
            }
            builder.append(record);
        }
        return bytes + finish(builder, target);
    }

    private static long finish(MemoryRecordsBuilder builder, UnifiedLog target) throws IOException {
        MemoryRecords built = builder.build();
        if (target != null) {
            target.appendAsLeader(built, 0);
        }
        return built.sizeInBytes();
    }

    /** Appends ready batches one by one, as a follower does. */
    private long replicate(UnifiedLog target) {
        for (MemoryRecords batch : batches) {
            target.appendAsFollower(batch, 0);
        }
        return target.logEndOffset();
    }

    /** Appends groups of records, each a batch, and flushes after each where that is wanted. */
    private long appendEach(UnifiedLog target, int group, boolean durable) throws IOException {
        ByteBuffer buffer = ByteBuffer.allocate(1 << 20);
        for (int start = 0; start < records.size(); start += group) {
            MemoryRecordsBuilder builder = builder(buffer);
            for (SimpleRecord record : records.subList(
                    start, Math.min(start + group, records.size()))) {
                builder.append(record);
            }
            target.appendAsLeader(builder.build(), 0);
            if (durable) {
                target.flush(false);
            }
        }
        return target.logEndOffset();
    }

    private long open(String directory) throws IOException {
        if (log != null) {
            log.closeHandlers();
        }
        log = create(directory, END_OF_LOG, true);
        log.updateHighWatermark(log.logEndOffset());
        return log.logEndOffset();
    }

    private static LongBuffer numbers(String path) throws IOException {
        return ByteBuffer.wrap(Files.readAllBytes(Path.of(path)))
                .order(ByteOrder.LITTLE_ENDIAN).asLongBuffer();
    }

    /** Finds the batch of each offset, and gives it as a slice of its file. */
    private long read(LongBuffer offsets) throws IOException {
        long bytes = 0;
        while (offsets.hasRemaining()) {
            bytes += log.read(offsets.get(), 1, FetchIsolation.LOG_END, true).records.sizeInBytes();
        }
        return bytes;
    }

    /** Finds the record of each offset, and touches its value. */
    private long get(LongBuffer offsets) throws IOException {
        long bytes = 0;
        while (offsets.hasRemaining()) {
            bytes += get(offsets.get()).value().remaining();
        }
        return bytes;
    }

    private Record get(long offset) throws IOException {
        for (Record record : log.read(offset, 1, FetchIsolation.LOG_END, true).records.records()) {
            if (record.offset() == offset) {
                return record;
            }
        }
        throw new IllegalStateException("no record at " + offset);
    }

    private long find(LongBuffer timestamps) {
        long sum = 0;
        while (timestamps.hasRemaining()) {
            sum += log.fetchOffsetByTimestamp(timestamps.get(), Optional.empty())
                    .timestampAndOffsetOpt().orElseThrow().offset;
        }
        return sum;
    }

    private String recover(String directory) throws IOException {
        UnifiedLog[] opened = new UnifiedLog[1];
        String answer = timed(() -> {
            opened[0] = create(directory, 0L, false);
            return opened[0].logEndOffset();
        });
        letGo(opened[0]);
        return answer;
    }
}
