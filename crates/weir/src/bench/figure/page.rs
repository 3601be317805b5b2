//! The report: one HTML file that needs nothing else, light and dark.

use super::compare::{self, Compared, Outcome};
use super::data::{Record, Verdict};

use std::fmt::Write;

const STYLE: &str = ":root{color-scheme:light dark;--line:#c9d3dc;--soft:#f3f6f9;--text:#1b2733;--back:#fff}\
@media(prefers-color-scheme:dark){:root{--line:#3a4653;--soft:#1c242c;--text:#dbe4ec;--back:#12181e}\
svg{filter:invert(.92) hue-rotate(180deg)}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--back);max-width:60rem;margin:2rem auto;padding:0 1rem}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3rem .5rem;border-bottom:1px solid var(--line);vertical-align:top}\
section{margin-top:2.5rem}svg{max-width:100%;height:auto}pre{background:var(--soft);padding:.6rem;overflow-x:auto}\
.reached{color:#00734f}.missed{color:#b8480a}@media(prefers-color-scheme:dark){.reached{color:#4fd3a8}.missed{color:#ff9d63}}";

/// The whole page.
pub fn page(records: &[Record], compared: Option<&[Compared]>, failed: &[String]) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Weir: figures</title><style>{STYLE}</style></head><body>\n<h1>Weir: the papers' figures</h1>\n<p>Points are medians, bars reach from the least to the most of all samples; none is left out. \
         Of five samples, whatever their distribution, such a bar has the true median in it in 94 of 100 cases.</p>\n"
    );
    // Writing to a string cannot fail: here and below.
    out.push_str("<table><tr><th>figure</th><th>claim</th><th>seen</th><th></th></tr>\n");
    for record in records {
        let _ = writeln!(
            out,
            "<tr><td><a href=\"#{}\">{}</a><br>{}</td><td>{}</td><td>{}</td><td class=\"{}\">{}</td></tr>",
            record.name,
            escaped(&record.source),
            record.name,
            escaped(&record.claim),
            escaped(&record.finding),
            match record.verdict {
                Verdict::Reached => "reached",
                Verdict::Missed => "missed",
                Verdict::DifferentSetUp => "",
            },
            record.verdict
        );
    }
    out.push_str("</table>\n");
    if !failed.is_empty() {
        let _ = writeln!(out, "<h2>Not made</h2>\n<pre>{}</pre>", escaped(&failed.join("\n")));
    }
    if let Some(compared) = compared {
        against(&mut out, compared);
    }
    for record in records {
        section(&mut out, record);
    }
    out.push_str("</body></html>\n");
    out
}

/// What came of the comparison with an earlier run.
fn against(out: &mut String, compared: &[Compared]) {
    let _ = writeln!(
        out,
        "<h2>Against the earlier run</h2>\n<p>{}. {}</p>\n<table><tr><th>figure</th><th></th><th></th></tr>",
        escaped(&compare::sum(compared)),
        escaped(compare::RULE)
    );
    for figure in compared {
        let class = match figure.outcome {
            Outcome::Agrees => "reached",
            Outcome::Differs => "missed",
            Outcome::Open => "",
        };
        let _ = writeln!(
            out,
            "<tr><td><a href=\"#{}\">{}</a></td><td class=\"{class}\">{}</td><td>{}</td></tr>",
            figure.name,
            figure.name,
            figure.outcome,
            escaped(&figure.text)
        );
    }
    out.push_str("</table>\n");
}

fn section(out: &mut String, record: &Record) {
    let svg = match record.series.is_empty() {
        true => "<p>Nothing was measured.</p>".to_owned(),
        false => record
            .chart()
            .to_svg()
            .unwrap_or_else(|e| format!("<p>no chart: {}</p>", escaped(&e.to_string()))),
    };
    let _ = writeln!(
        out,
        "<section id=\"{}\"><h2>{}: {}</h2>\n{svg}\n<p><b>Claim:</b> {}<br><b>Seen:</b> {} ({})<br><b>Set-up:</b> {} \
         {} samples of {} s each, taken in {:.0} s; ring {}, pool {}; {}; {}. {}; Weir {}.</p>\n\
         <p><code>weir bench figure {}</code> · <a href=\"{}.csv\">CSV</a> · <a href=\"{}.json\">JSON</a></p></section>",
        record.name,
        escaped(&record.source),
        escaped(&record.title),
        escaped(&record.claim),
        escaped(&record.finding),
        record.verdict,
        escaped(&record.set_up),
        record.effort.samples,
        record.effort.seconds,
        record.took_seconds,
        record.effort.ring,
        record.effort.pool,
        escaped(&record.class()),
        regime(record),
        escaped(&record.machine.line()),
        escaped(&record.version),
        record.name,
        record.name,
        record.name,
    );
}

/// In which mood the machine was.
fn regime(record: &Record) -> String {
    match record.regime() {
        Some([least, median, most]) => {
            format!(
                "words crossed cores in {least:.0} / {median:.0} / {most:.0} ns (least / median / most)"
            )
        }
        None => "one core at a time".to_owned(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
