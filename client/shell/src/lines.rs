//! Several lines that were pasted as one text: a command each.

/// The commands of a text: its lines, except where a quote or a backslash holds the end of a line.
pub(crate) fn split(text: &str) -> Vec<&str> {
    let (mut lines, mut start) = (Vec::new(), 0);
    let (mut quote, mut is_escaped) = (None, false);
    for (at, letter) in text.char_indices() {
        match (letter, quote) {
            _ if is_escaped => is_escaped = false,
            // Between single quotes it is a letter like any other.
            ('\\', None | Some('"')) => is_escaped = true,
            ('\'' | '"', None) => quote = Some(letter),
            (_, Some(open)) if letter == open => quote = None,
            ('\n', None) => {
                lines.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    lines.push(&text[start..]);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_command() {
        assert_eq!(split("ls /"), ["ls /"]);
        assert_eq!(split("create /a\nls /\n"), ["create /a", "ls /", ""]);
    }

    #[test]
    fn what_is_quoted_may_have_lines() {
        assert_eq!(split("set /a 'one\ntwo'\nls /"), ["set /a 'one\ntwo'", "ls /"]);
        assert_eq!(split("set /a \"it's \\\"\n\"\nls /"), ["set /a \"it's \\\"\n\"", "ls /"]);
        assert_eq!(split("set /a '\\'\nls /"), ["set /a '\\'", "ls /"]);
        assert_eq!(split("ls \\\n/"), ["ls \\\n/"]);
    }
}
