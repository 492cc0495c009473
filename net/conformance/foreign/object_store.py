"""S3Proxy: S3's protocol in front of a folder, with the bucket `backups`."""

from server import FOREIGN_DIR

IDENTITY, SECRET = "drill", "drill-secret"


def prepare(folder, endpoint):
    """The command that starts the store, and the environment of its clients."""
    (folder / "buckets/backups").mkdir(parents=True)
    properties = folder / "s3.properties"
    properties.write_text(f"s3proxy.authorization=aws-v2-or-v4\ns3proxy.endpoint={endpoint}\n"
                          f"s3proxy.identity={IDENTITY}\ns3proxy.credential={SECRET}\n"
                          f"jclouds.provider=filesystem-nio2\n"
                          f"jclouds.filesystem.basedir={folder / 'buckets'}\n")
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-DLOG_LEVEL=warn",
               "-cp", str(FOREIGN_DIR / "s3proxy" / "*"), "org.gaul.s3proxy.Main",
               "--properties", str(properties)]
    return command, {"AWS_ENDPOINT": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
                     "AWS_ACCESS_KEY_ID": IDENTITY, "AWS_SECRET_ACCESS_KEY": SECRET}
