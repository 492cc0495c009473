//! SPIFFE ids: URIs that name a program, such as `spiffe://example.org/billing`, in a certificate that its
//! platform has issued (the SPIFFE standards "SPIFFE-ID" and "X509-SVID").

/// The longest id, in bytes.
const LEN_MAX: usize = 2048;

/// The trust domain of a SPIFFE id of a program; `None` if the text is none.
#[must_use]
pub fn spiffe_trust_domain(id: &str) -> Option<&str> {
    let (domain, path) = id.strip_prefix("spiffe://")?.split_once('/')?;
    let is_id = id.len() <= LEN_MAX && is_spiffe_trust_domain(domain) && path.split('/').all(is_segment);
    is_id.then_some(domain)
}

/// Whether a trust domain can have this name.
#[must_use]
pub fn is_spiffe_trust_domain(name: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
    !name.is_empty() && name.bytes().all(is_allowed)
}

fn is_segment(segment: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    !matches!(segment, "" | "." | "..") && segment.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_a_trust_domain_and_a_path() {
        for (id, domain) in [
            ("spiffe://example.org/a", Some("example.org")),
            ("spiffe://x_1-y.z/ns/prod/sa/Billing..1", Some("x_1-y.z")),
            ("spiffe://example.org", None),
            ("spiffe://example.org/", None),
            ("spiffe://example.org/a/", None),
            ("spiffe://example.org//a", None),
            ("spiffe://example.org/a/../b", None),
            ("spiffe://example.org/./b", None),
            ("spiffe://Example.org/a", None),
            ("spiffe://example.org:80/a", None),
            ("spiffe://user@example.org/a", None),
            ("spiffe:///a", None),
            ("spiffe://example.org/a?b", None),
            ("spiffe://example.org/%41", None),
            ("SPIFFE://example.org/a", None),
            ("https://example.org/a", None),
            ("CN=a", None),
        ] {
            assert_eq!(spiffe_trust_domain(id), domain, "{id}");
        }
        assert_eq!(spiffe_trust_domain(&format!("spiffe://a/{}", "x".repeat(2037))), Some("a"));
        assert_eq!(spiffe_trust_domain(&format!("spiffe://a/{}", "x".repeat(2038))), None);
    }
}
