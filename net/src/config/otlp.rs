//! Where traces are sent.

use std::fmt;

use hyper::Uri;

/// The path of traces in OTLP over HTTP.
const PATH: &str = "/v1/traces";

/// A collector of OpenTelemetry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint(Uri);

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Endpoint {
    /// Such as `http://127.0.0.1:4318/v1/traces`. Without a path it is that of OTLP.
    pub(super) fn parse(value: &str) -> Result<Self, String> {
        let wrong = |why| format!("{value:?} {why}: name a collector, such as http://127.0.0.1:4318{PATH}");
        let uri = value.parse::<Uri>().map_err(|_| wrong("is no URL"))?;
        let authority = uri.authority().ok_or_else(|| wrong("is no URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(wrong("does not begin with http://, and a collector beside the server needs no TLS"));
        }
        if authority.as_str().contains('@') {
            return Err(wrong("has a user, which is not sent"));
        }
        let path = uri.path_and_query().map_or(PATH, |path| path.as_str());
        let path = if path == "/" { PATH } else { path };
        let port = authority.port_u16().unwrap_or(80);
        let uri = format!("http://{}:{port}{path}", authority.host()).parse();
        uri.map(Self).map_err(|_| wrong("is no URL"))
    }

    pub(crate) const fn uri(&self) -> &Uri {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_url_without_tls_and_user() {
        let shown = |value| Endpoint::parse(value).map(|endpoint| endpoint.to_string());
        let usual = "http://127.0.0.1:4318/v1/traces";
        assert_eq!(shown("http://127.0.0.1:4318").as_deref(), Ok(usual));
        assert_eq!(shown("http://127.0.0.1:4318/").as_deref(), Ok(usual));
        assert_eq!(shown("http://otel/x?y=1").as_deref(), Ok("http://otel:80/x?y=1"));
        assert_eq!(shown("http://[::1]:4318/").as_deref(), Ok("http://[::1]:4318/v1/traces"));
        for (wrong, why) in [
            ("https://otel:4318", "http://"),
            ("otel:4318", "http://"),
            ("http://", "is no URL"),
            ("http://a:b@otel", "has a user"),
            ("/v1/traces", "is no URL"),
        ] {
            let told = shown(wrong).expect_err(wrong);
            assert!(told.contains(why) && told.contains(usual), "{told}");
        }
    }
}
