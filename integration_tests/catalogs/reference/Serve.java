import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/** Iceberg's own catalog of its REST specification, on the loopback interface alone, until its input ends. */
public class Serve {
  public static void main(String[] arguments) throws Exception {
    var properties = Map.of(
        "catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri", "jdbc:sqlite::memory:",
        "jdbc.schema-version", "V1",
        "jdbc.strict-mode", "true",
        "warehouse", arguments[0],
        "io-impl", "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint", arguments[1],
        "s3.path-style-access", "true",
        "client.region", arguments[2]);
    var adapter = new RESTCatalogAdapter(CatalogUtil.buildIcebergCatalog("reference", properties, null));
    var context = new ServletContextHandler();
    context.addServlet(new ServletHolder(new RESTCatalogServlet(adapter)), "/*");
    var server = new Server(new InetSocketAddress("127.0.0.1", 0));
    server.setHandler(context);
    server.start();
    System.out.println(((ServerConnector) server.getConnectors()[0]).getLocalPort());
    System.in.read();
    System.exit(0);
  }
}
