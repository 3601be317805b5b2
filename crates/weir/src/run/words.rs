//! The words of a file of options, and what some of them say.

use weir_filter::Filter;
use weir_runtime::spec::EarlySpec;

/// Largest weight of a class of packets.
const HEAVIEST: u32 = 1000;

/// The words of a text as a shell would have them, without anything else that a shell does: what stands in quotes, of either
/// kind, is of one word, and `#` begins a comment where a word could begin.
pub fn words(text: &str) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for line in text.lines() {
        let mut word: Option<String> = None;
        let mut chars = line.chars();
        while let Some(c) = chars.next() {
            match c {
                '#' if word.is_none() => break,
                '\'' | '"' => {
                    let within = word.get_or_insert_default();
                    loop {
                        match chars.next() {
                            Some(end) if end == c => break,
                            Some(other) => within.push(other),
                            None => {
                                return Err(format!(
                                    "a quotation mark {c} has no second one in its line: write it"
                                ));
                            }
                        }
                    }
                }
                space if space.is_whitespace() => all.extend(word.take()),
                other => word.get_or_insert_default().push(other),
            }
        }
        all.extend(word);
    }
    Ok(all)
}

/// Understands `FILTER=WEIGHT`, as `--early-drop` is given.
pub fn parse_class(text: &str) -> Result<EarlySpec, String> {
    let form = "write FILTER=WEIGHT, such as 'udp port 53=8'";
    let (filter, weight) = text.rsplit_once('=').ok_or(form)?;
    let weight = weight.trim().parse().ok().filter(|weight| (1..=HEAVIEST).contains(weight));
    let weight =
        weight.ok_or_else(|| format!("`{text}`: the weight is 1 to {HEAVIEST}; {form}"))?;
    let filter = filter.trim();
    let expr = weir_filter::parse(filter).map_err(|errors| {
        let why = errors.first().map_or_else(String::new, ToString::to_string);
        format!("`{filter}`: {why}; {form}")
    })?;
    if !expr.tags().is_empty() || !expr.tag_tests().is_empty() {
        return Err(format!("`{filter}`: packets have no tags yet where they come in"));
    }
    Filter::compile(&expr.resolve_ingress(0)).map_err(|e| format!("`{filter}`: {e}"))?;
    Ok(EarlySpec { text: filter.to_owned(), filter: expr, weight })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
    use super::*;

    #[test]
    fn quotes_keep_words_together_and_comments_begin_where_words_do() {
        let text = "--isolate each # as at first\n--early-drop 'udp port 53=8' a\"b c\"d x#y ''\n#";
        let all = ["--isolate", "each", "--early-drop", "udp port 53=8", "ab cd", "x#y", ""];
        assert_eq!(words(text).unwrap(), all);
        assert!(words("a\n'b").unwrap_err().starts_with("a quotation mark ' has no second"));
    }

    #[test]
    fn a_class_is_a_filter_and_a_weight() {
        let class = parse_class("ip[8] = 64=8").unwrap();
        assert_eq!((class.text.as_str(), class.weight), ("ip[8] = 64", 8));
        for (text, why) in [
            ("udp", "write FILTER=WEIGHT"),
            ("udp=0", "1 to 1000"),
            ("udp=many", "1 to 1000"),
            ("udpp=1", "`udpp`"),
        ] {
            let said = parse_class(text).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
