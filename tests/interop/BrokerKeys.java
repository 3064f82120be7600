import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;

/** Prints every setting of a broker: name, type, default, parted by tabs. */
public class BrokerKeys {
    public static void main(String[] arguments) {
        for (ConfigDef.ConfigKey key :
                new TreeMap<>(AbstractKafkaConfig.CONFIG_DEF.configKeys()).values()) {
            System.out.println(key.name + "\t" + key.type + "\t" + key.defaultValue);
        }
    }
}
