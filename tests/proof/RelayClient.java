import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's own clients at work on a broker's leg of a relay, as relay_client.py has librdkafka's.
 *
 * Arguments: ADDRESS SEED PREFIX SETTINGS GONE END0 END1, as of relay_client.py. First the group
 * reads on from where it stands, to the end; then things are done at random until the standard
 * input ends. A line of JSON for each.
 */
public class RelayClient {
    static final Duration STEP = Duration.ofMillis(200);
    static final long READ_MS = 25_000;

    final Random random;
    final String prefix;
    final long[] ends;
    final Properties common = new Properties();
    final KafkaProducer<String, String> plain;
    final KafkaProducer<String, String> mover;
    final Admin admin;
    final Map<String, String> settings = new HashMap<>();
    boolean hasGone;
    int count = 0;

    RelayClient(String[] arguments) {
        random = new Random(Long.parseLong(arguments[1]));
        prefix = arguments[2];
        Matcher pairs = Pattern.compile("\"([^\"]+)\": \"([^\"]+)\"").matcher(arguments[3]);
        while (pairs.find()) {
            settings.put(pairs.group(1), pairs.group(2));
        }
        hasGone = arguments[4].equals("1");
        ends = new long[] {Long.parseLong(arguments[5]), Long.parseLong(arguments[6])};
        common.put("bootstrap.servers", arguments[0]);
        common.put("key.serializer", StringSerializer.class.getName());
        common.put("value.serializer", StringSerializer.class.getName());
        common.put("key.deserializer", StringDeserializer.class.getName());
        common.put("value.deserializer", StringDeserializer.class.getName());
        plain = new KafkaProducer<>(common);
        Properties transactional = new Properties();
        transactional.putAll(common);
        transactional.put("transactional.id", "mover");
        transactional.put("transaction.timeout.ms", "10000");
        mover = new KafkaProducer<>(transactional);
        mover.initTransactions();
        Properties operator = new Properties();
        operator.put("bootstrap.servers", arguments[0]);
        admin = Admin.create(operator);
    }

    static void say(String what, Object... arguments) {
        StringBuilder line = new StringBuilder("[\"" + what + "\"");
        for (Object each : arguments) {
            line.append(", ").append(each);
        }
        // One write, so that a kill leaves no half of it.
        byte[] bytes = line.append("]\n").toString().getBytes();
        System.out.write(bytes, 0, bytes.length);
        System.out.flush();
    }

    static String quoted(String text) {
        return "\"" + text + "\"";
    }

    static String listed(List<String> values) {
        return "[" + String.join(", ", values.stream().map(RelayClient::quoted).toList()) + "]";
    }

    List<String> values(int most) {
        List<String> made = new ArrayList<>();
        for (int number = random.nextInt(most) + 1; number > 0; number--) {
            made.add(prefix + "-" + ++count + "-" + "z".repeat(random.nextInt(60)));
        }
        return made;
    }

    KafkaConsumer<String, String> consumer() {
        Properties settings = new Properties();
        settings.putAll(common);
        settings.put("group.id", "group");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(settings);
    }

    /** Read on from where the group stands; behind a later leader epoch it would get nothing. */
    void readOn() {
        try (KafkaConsumer<String, String> consumer = consumer()) {
            Set<TopicPartition> partitions =
                    Set.of(new TopicPartition("plain", 0), new TopicPartition("plain", 1));
            consumer.assign(partitions);
            Map<TopicPartition, Long> wanted = consumer.endOffsets(partitions);
            long until = System.currentTimeMillis() + READ_MS;
            boolean isDone = false;
            int got = 0;
            OffsetAndMetadata[] last = new OffsetAndMetadata[2];
            while (!isDone && System.currentTimeMillis() < until) {
                ConsumerRecords<String, String> found = consumer.poll(STEP);
                got += found.count();
                found.forEach(record -> last[record.partition()] = new OffsetAndMetadata(
                        record.offset() + 1, record.leaderEpoch(), ""));
                isDone = partitions.stream().allMatch(
                        each -> consumer.position(each) >= wanted.get(each));
            }
            if (!isDone) {
                say("problem", quoted("a Java group got " + got + " records, and not to the end"));
            }
            for (int partition = 0; partition < 2; partition++) {
                if (last[partition] != null) {
                    commit(consumer, partition, last[partition]);
                }
            }
        }
    }

    void commit(KafkaConsumer<String, String> consumer, int partition, OffsetAndMetadata where) {
        say("try position", partition, where.offset());
        consumer.commitSync(Map.of(new TopicPartition("plain", partition), where));
        say("position is", partition, where.offset());
    }

    void commitPosition() {
        int partition = random.nextInt(2);
        long offset = (long) (random.nextDouble() * (ends[partition] + 1));
        try (KafkaConsumer<String, String> consumer = consumer()) {
            commit(consumer, partition, new OffsetAndMetadata(offset));
        }
    }

    void produce() throws Exception {
        String topic = List.of("plain", "plain", "old", "cut", "gone").get(random.nextInt(5));
        if (!topic.equals("gone")) {
            produce(topic, plain);
        } else if (hasGone) {
            // A topic that was deleted and made again is another one: nothing may be remembered.
            try (KafkaProducer<String, String> fresh = new KafkaProducer<>(common)) {
                produce(topic, fresh);
            }
        }
    }

    void produce(String topic, KafkaProducer<String, String> producer) throws Exception {
        List<String> values = values(8);
        say("try append", quoted(topic), listed(values));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String value : values) {
            sent.add(producer.send(new ProducerRecord<>(topic, value)));
        }
        producer.flush();
        for (int number = 0; number < values.size(); number++) {
            RecordMetadata where = sent.get(number).get();
            if (topic.equals("plain")) {
                ends[where.partition()] = Math.max(ends[where.partition()], where.offset() + 1);
            }
            String value = listed(List.of(values.get(number)));
            say("appended", quoted(topic), where.partition(), where.offset(), value);
        }
    }

    void renew() throws Exception {
        String topic = random.nextBoolean() ? "latest" : "oldest";
        for (String value : values(10)) {
            String key = "k" + random.nextInt(80);
            say("try renew", quoted(topic), quoted(key), quoted(value));
            plain.send(new ProducerRecord<>(topic, key, value)).get();
            say("renewed", quoted(topic), quoted(key), quoted(value));
        }
    }

    void removeOrMake() throws Exception {
        if (hasGone) {
            say("try remove");
            admin.deleteTopics(List.of("gone")).all().get();
            say("removed");
        } else {
            NewTopic topic = new NewTopic("gone", 2, (short) 1).configs(settings);
            admin.createTopics(List.of(topic)).all().get();
            say("made");
        }
        hasGone = !hasGone;
    }

    void transact() throws Exception {
        List<String> first = values(3);
        List<String> second = values(3);
        String name = quoted(first.get(0));
        mover.beginTransaction();
        say("begin", name, "{\"0\": " + listed(first) + ", \"1\": " + listed(second) + "}");
        for (String value : first) {
            mover.send(new ProducerRecord<>("moved", 0, null, value));
        }
        for (String value : second) {
            mover.send(new ProducerRecord<>("moved", 1, null, value));
        }
        if (random.nextDouble() < 0.3) {
            mover.abortTransaction();
            say("decide", name, "\"aborted\"");
        } else {
            say("decide", name, "\"committing\"");
            mover.commitTransaction();
            say("decide", name, "\"committed\"");
        }
    }

    void work() throws Exception {
        if (random.nextDouble() < (hasGone ? 0.05 : 0.5)) {
            removeOrMake();
            return;
        }
        switch (random.nextInt(5)) {
            case 0, 1 -> produce();
            case 2 -> renew();
            case 3 -> transact();
            default -> commitPosition();
        }
    }

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Throwable error) {
            // Said here: what starts a program from its source fails at some traces.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    static void run(String[] arguments) throws Exception {
        RelayClient client = new RelayClient(arguments);
        client.readOn();
        say("ready");
        AtomicBoolean isOver = new AtomicBoolean();
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (java.io.IOException error) {
                // As if it had ended.
            }
            isOver.set(true);
        });
        watch.setDaemon(true);
        watch.start();
        do {
            client.work();
        } while (!isOver.get());
        client.plain.close();
        client.mover.close();
        client.admin.close();
        say("closed");
        System.exit(0);
    }
}
