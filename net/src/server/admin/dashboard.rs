//! The dashboard: pages for a browser, built into the binary. They show what the admin listener tells
//! everybody, and load nothing from elsewhere (docs/decisions/0045-dashboard.md).

use std::net::IpAddr;

use hyper::body::Incoming;
use hyper::header::{CONTENT_SECURITY_POLICY, HOST, HeaderValue, LOCATION, REFERRER_POLICY};
use hyper::http::uri::Authority;
use hyper::{Request, Response, StatusCode};
use serde_json::json;

use super::command::GET;
use super::service::{Body, json_of, not_found, plain, refuse, respond};
use crate::config::Config;

/// Where it is.
const PLACE: &str = "/dashboard";

/// Scripts, styles and data of its own alone, and no other page may show it in a frame.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

const HTML: &str = "text/html;charset=utf-8";
const CSS: &str = "text/css;charset=utf-8";
const IMAGE: &str = "image/svg+xml";
const SCRIPT: &str = "text/javascript;charset=utf-8";

/// A file of the folder net/dashboard: its name, its kind, its contents.
macro_rules! files {
    ($($kind:ident $name:literal,)*) => {
        &[$(($name, $kind, include_str!(concat!("../../../dashboard/", $name))),)*]
    };
}

const PAGE: &str = "index.html";
const FILES: &[(&str, &str, &str)] = files! {
    HTML "index.html",
    CSS "style.css",
    IMAGE "icon.svg",
    SCRIPT "main.js",
    SCRIPT "chart.js",
    SCRIPT "dom.js",
    SCRIPT "ensemble.js",
    SCRIPT "lists.js",
    SCRIPT "load.js",
    SCRIPT "server.js",
    SCRIPT "settings.js",
};

/// Serves the dashboard, if there is one.
pub(super) struct Dashboard {
    /// Names by which browsers may ask for it, beside addresses and `localhost`.
    hosts: Vec<String>,
    command_url: String,
}

impl Dashboard {
    pub(super) fn new(config: &Config) -> Option<Self> {
        let own = config.own_server().map(|own| own.host.clone());
        let hosts = config.admin.dashboard_hosts.iter().cloned().chain(own).collect();
        let command_url = config.admin.command_url.clone();
        config.admin.dashboard.then_some(Self { hosts, command_url })
    }

    /// Answers a request, if it is for the dashboard.
    pub(super) fn answer(&self, request: &Request<Incoming>) -> Option<Response<Body>> {
        let path = request.uri().path();
        let rest = if path == "/" { "" } else { path.strip_prefix(PLACE)? };
        let mut response = match rest.strip_prefix('/') {
            None if rest.is_empty() => redirect(),
            None => return None,
            Some(name) => self.guarded(request, name),
        };
        let headers = response.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, POLICY);
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        Some(response)
    }

    fn guarded(&self, request: &Request<Incoming>, name: &str) -> Response<Body> {
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if !self.is_known(host) {
            let text = format!(
                "{host:?} is not known as a name of this server: add it to ringkeeper.dashboard.hosts\n"
            );
            return plain(StatusCode::MISDIRECTED_REQUEST, text);
        }
        refuse(request, GET).unwrap_or_else(|| self.file(name))
    }

    /// Whether a browser may ask by this name. A page from elsewhere can have its own name mean this
    /// server's address, and would then be taken for a part of the dashboard.
    fn is_known(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else { return false };
        let name = authority.host().trim_start_matches('[').trim_end_matches(']');
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|known| known == "*" || known.eq_ignore_ascii_case(name))
    }

    fn file(&self, name: &str) -> Response<Body> {
        if name == "facts" {
            let facts = json!({ "commands": self.command_url, "version": env!("CARGO_PKG_VERSION") });
            return json_of(StatusCode::OK, &facts);
        }
        let name = if name.is_empty() { PAGE } else { name };
        match FILES.iter().find(|(known, ..)| *known == name) {
            Some((_, kind, text)) => respond(StatusCode::OK, kind, (*text).to_owned()),
            None => not_found(&format!("{PLACE}/{name}")),
        }
    }
}

/// To the page. The address is relative, so that it holds behind a proxy, too.
fn redirect() -> Response<Body> {
    let mut response = plain(StatusCode::TEMPORARY_REDIRECT, "the dashboard is at dashboard/\n".to_owned());
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("dashboard/"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_the_operator_has_not_given_is_refused() {
        let dashboard = |hosts: &[&str]| Dashboard {
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            command_url: String::new(),
        };
        let strict = dashboard(&["zk1.example.org"]);
        for known in ["127.0.0.1:8080", "[::1]:8080", "localhost", "LOCALHOST:1", "zk1.example.org:8080"] {
            assert!(strict.is_known(known), "{known}");
        }
        for unknown in ["", "evil.example.org", "127.0.0.1.evil.example.org:8080", "zk1.example.org.evil"] {
            assert!(!strict.is_known(unknown), "{unknown}");
        }
        assert!(dashboard(&["*"]).is_known("anything"));
    }

    #[test]
    fn the_page_has_no_script_and_no_style_in_itself_and_loads_nothing_from_elsewhere() {
        let (_, _, page) = FILES.iter().find(|(name, ..)| *name == PAGE).expect("the page");
        assert!(!page.contains("style=") && !page.contains(" on") && !page.contains("<style"));
        assert!(page.split("<script").skip(1).all(|script| script.contains(" src=\"main.js\"></script>")));
        for (name, _, text) in FILES {
            let addresses = text.matches("://").count() - text.matches("http://www.w3.org/2000/svg").count();
            assert_eq!(addresses, 0, "{name} names an address");
        }
    }
}
