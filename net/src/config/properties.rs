//! The syntax of `zoo.cfg`: Java's properties format (`java.util.Properties.load`), with line numbers kept.

/// One setting of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Property {
    /// Line on which it begins, from 1.
    pub(crate) line: usize,
    pub(crate) key: String,
    pub(crate) value: String,
}

/// Splits the text of a properties file into its settings, in order of appearance.
pub(crate) fn parse(text: &str) -> Vec<Property> {
    let mut properties = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = line.to_owned();
        while ends_with_continuation(&logical) {
            logical.pop();
            match lines.next() {
                Some((_, more)) => logical.push_str(more.trim_start()),
                None => break,
            }
        }
        let (key, value) = split(&logical);
        properties.push(Property {
            line: index + 1,
            key: unescape(key),
            value: unescape(value).trim_end().to_owned(),
        });
    }
    properties
}

/// The text with `***` for the values of keys that hold secrets: passwords, and the digest of the
/// superuser's.
pub(crate) fn without_secrets(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut lines = text.lines();
    while let Some(mut line) = lines.next() {
        let key = unescape(split(line.trim_start()).0);
        let name = key.to_ascii_lowercase();
        let is_secret = name.ends_with("password") || name.ends_with("superdigest");
        if is_secret {
            shown.extend([&key, "=***\n"]);
        }
        loop {
            if !is_secret {
                shown.extend([line, "\n"]);
            }
            let Some(more) = ends_with_continuation(line).then(|| lines.next()).flatten() else { break };
            line = more;
        }
    }
    shown
}

/// Whether the line ends with an odd number of backslashes, so that the next line continues it.
fn ends_with_continuation(line: &str) -> bool {
    line.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1
}

/// The key ends at the first unescaped `=`, `:` or blank; blanks and one separator before the value are
/// dropped.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line
        .char_indices()
        .find(|&(_, c)| {
            let ends = !escaped && (c == '=' || c == ':' || c.is_whitespace());
            escaped = c == '\\' && !escaped;
            ends
        })
        .map_or(line.len(), |(at, _)| at);
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start();
    (key, rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start())
}

/// Resolves `\t`, `\n`, `\r`, `\f`, `\uXXXX`; before any other character the backslash is dropped.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        match chars.next() {
            Some('t') => plain.push('\t'),
            Some('n') => plain.push('\n'),
            Some('r') => plain.push('\r'),
            Some('f') => plain.push('\x0c'),
            Some('u') => {
                let digits: String = chars.by_ref().take(4).collect();
                let decoded = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                plain.push(decoded.unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            Some(other) => plain.push(other),
            None => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(usize, String, String)> {
        parse(text).into_iter().map(|p| (p.line, p.key, p.value)).collect()
    }

    #[test]
    fn secrets_are_not_shown_however_they_are_written() {
        let text = "a=1\n ssl.keyStore.password : one\\\n  more\n# b\nssl.keyStore.passwordPath=/p\n\
                    x.superDigest=s:d";
        let shown = "a=1\nssl.keyStore.password=***\n# b\nssl.keyStore.passwordPath=/p\nx.superDigest=***\n";
        assert_eq!(without_secrets(text), shown);
    }

    #[test]
    fn keys_and_values_are_separated_as_java_does_it() {
        let expected = |key: &str, value: &str| vec![(1, key.to_owned(), value.to_owned())];
        assert_eq!(pairs("tickTime=2000"), expected("tickTime", "2000"));
        assert_eq!(pairs("  tickTime = 2000  "), expected("tickTime", "2000"));
        assert_eq!(pairs("tickTime: 2000"), expected("tickTime", "2000"));
        assert_eq!(pairs("tickTime 2000"), expected("tickTime", "2000"));
        assert_eq!(pairs("server.1=a:1:2;3"), expected("server.1", "a:1:2;3"));
        assert_eq!(pairs("a\\=b=c"), expected("a=b", "c"));
        assert_eq!(pairs("flag"), expected("flag", ""));
    }

    #[test]
    fn comments_blank_lines_and_continuations_keep_line_numbers_true() {
        let text = "# comment\n\n! other\na=1\nb=2,\\\n   3\nc=4\n";
        let expected = [(4, "a", "1"), (5, "b", "2,3"), (7, "c", "4")];
        let found = pairs(text);
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!((found.0, found.1.as_str(), found.2.as_str()), expected);
        }
    }

    #[test]
    fn escapes_are_resolved() {
        assert_eq!(pairs("dir=/a\\u0020b\\tc\\\\d"), vec![(1, "dir".to_owned(), "/a b\tc\\d".to_owned())]);
        assert_eq!(pairs("dir=end\\"), vec![(1, "dir".to_owned(), "end".to_owned())]);
    }
}
