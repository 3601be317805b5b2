//! Words for the operator. What others chose (names, option values, texts of policies and workers) can
//! hold what steers a terminal: nothing that is printed as text lets it through.

mod queue;

use queue::Queue;
use std::borrow::Cow;
use std::fmt::{Arguments, Write as _};
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What is written by a thread of its own, once [`in_background`] was called.
static BACKGROUND: OnceLock<Arc<Queue>> = OnceLock::new();
/// How long the end of the program waits for somebody to read what was said.
const PATIENCE: Duration = Duration::from_secs(2);

/// From now on nobody waits until what is said is written: a pipe that is full, or a terminal that was stopped, keeps
/// only a thread of its own waiting, and what does not fit into its queue meanwhile is left out and counted.
pub fn in_background() {
    let queue = Arc::new(Queue::default());
    let theirs = queue.clone();
    let write = move || theirs.write_to(io::stderr());
    // Without a thread there will be no workers either: that is where it is said.
    if std::thread::Builder::new().name("weir-say".into()).spawn(write).is_ok() {
        let _ = BACKGROUND.set(queue);
    }
}

/// Waits until all that was said is written, but not for ever.
pub fn flush() {
    if let Some(queue) = BACKGROUND.get() {
        queue.flush(PATIENCE);
    }
}

/// Prints a line to standard error as `eprintln` does, but goes on when nobody reads it: a log that
/// was closed must not end a running graph.
macro_rules! complain {
    ($($arg:tt)*) => { $crate::say::line(format_args!($($arg)*)) };
}
pub(crate) use complain;

/// See the macro.
pub fn line(line: Arguments<'_>) {
    write(format!("{}\n", escaped(&line.to_string())));
}

/// Prints a line to standard output as `println` does, but goes on when nobody reads it any more: what is measured goes into files, too.
macro_rules! print_line {
    ($($arg:tt)*) => {{ let _ = $crate::say::tell(&format!("{}\n", format_args!($($arg)*))); }};
}
pub(crate) use print_line;

/// Lines that are ready, such as warnings, to standard error.
pub fn warn(lines: &str) {
    write(escaped(lines).into_owned());
}

/// Text that is to steer the terminal, to standard error.
pub fn raw(text: &str) {
    write(text.to_owned());
}

fn write(text: String) {
    match BACKGROUND.get() {
        Some(queue) => queue.push(text),
        None => {
            let _ = io::stderr().write_all(text.as_bytes());
        }
    }
}

/// What was asked for, to standard output. JSON stays what it is.
pub fn tell(text: &str) -> io::Result<()> {
    // What was said before comes before it.
    flush();
    let mut out = io::stdout().lock();
    out.write_all(escaped(text).as_bytes())?;
    out.flush()
}

/// Text of which nothing moves a cursor, changes colours or turns the direction of writing: such characters
/// become what JSON writes for them (`\u001b`).
pub fn escaped(text: &str) -> Cow<'_, str> {
    escape(text, |c| steers(c) && !matches!(c, '\n' | '\t'))
}

/// The same as one line, for what workers say.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escape(text, steers)
}

/// Control characters, and those that turn the direction of writing (Unicode Standard Annex 9).
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape(text: &str, bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&bad) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if bad(c) {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_is_left_and_all_else_is() {
        assert_eq!(escaped("µNF `x`\n\tline"), "µNF `x`\n\tline");
        assert_eq!(
            escaped("\x1b[31mred\u{9b}2J\u{202e}\x7f\r"),
            "\\u001b[31mred\\u009b2J\\u202e\\u007f\\u000d"
        );
        assert_eq!(one_line("a\nb"), "a\\u000ab");
        let all: String = ('\0'..='\u{ffff}').collect();
        assert!(!escaped(&all).contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
    }

    #[test]
    fn json_means_the_same_when_it_is_escaped() {
        let value = serde_json::json!({ "a\u{9b}": "\u{202e}\x7f\x1b\n" });
        let text = serde_json::to_string_pretty(&value).unwrap();
        assert_ne!(escaped(&text), text);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped(&text)).unwrap(), value);
    }
}
