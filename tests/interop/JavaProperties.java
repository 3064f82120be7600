import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.util.Properties;
import java.util.TreeMap;

/**
 * Says what java.util.Properties makes of texts. Standard input: the length (four bytes) and the
 * bytes of each. Standard output: a line for each, "refused" or its sorted pairs, in hex.
 */
public class JavaProperties {
    public static void main(String[] arguments) throws IOException {
        DataInputStream input = new DataInputStream(System.in);
        StringBuilder output = new StringBuilder();
        while (input.available() > 0) {
            byte[] text = new byte[input.readInt()];
            input.readFully(text);
            output.append(describe(text)).append('\n');
        }
        System.out.print(output);
    }

    private static String describe(byte[] text) throws IOException {
        Properties properties = new Properties();
        try {
            properties.load(new ByteArrayInputStream(text));
        } catch (IllegalArgumentException error) {
            return "refused";
        }
        StringBuilder line = new StringBuilder();
        for (String key : new TreeMap<>(properties).keySet().toArray(new String[0])) {
            line.append(hex(key)).append('=').append(hex(properties.getProperty(key))).append(' ');
        }
        return line.toString().strip();
    }

    private static String hex(String text) {
        StringBuilder digits = new StringBuilder();
        for (char unit : text.toCharArray()) {
            digits.append(String.format("%04x", (int) unit));
        }
        return digits.toString();
    }
}
