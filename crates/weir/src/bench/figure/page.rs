//! The report: one HTML file that needs nothing else, light and dark.

use super::compare::{self, Comparison, Outcome};
use super::data::{Record, Verdict};
use super::make::OTHERS;
use super::shown::samples;
use std::fmt::Write;

const STYLE: &str = ":root{color-scheme:light dark;--line:#c9d3dc;--soft:#f3f6f9;--text:#1b2733;--back:#fff}\
@media(prefers-color-scheme:dark){:root{--line:#3a4653;--soft:#1c242c;--text:#dbe4ec;--back:#12181e}\
svg{filter:invert(.92) hue-rotate(180deg)}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--back);max-width:60rem;margin:2rem auto;padding:0 1rem}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3rem .5rem;border-bottom:1px solid var(--line);vertical-align:top}\
section{margin-top:2.5rem}svg{max-width:100%;height:auto}pre{background:var(--soft);padding:.6rem;overflow-x:auto}\
.reached{color:#00734f}.missed{color:#b8480a}@media(prefers-color-scheme:dark){.reached{color:#4fd3a8}.missed{color:#ff9d63}}";

/// Of fewer samples nothing can be said of a bar.
const FEW: usize = 3;

/// The whole page.
/// `others`: figures that the folder has of another run.
pub fn page(
    records: &[Record],
    compared: Option<&Comparison>,
    failed: &[String],
    others: &[String],
) -> String {
    let samples = records.iter().map(|record| record.effort.samples).min().unwrap_or(0);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Weir: figures</title><style>{STYLE}</style></head><body>\n<h1>Weir: the papers' figures</h1>\n<p>Points are medians, bars reach from the least to the most of all samples; none is left out. {}</p>\n",
        match samples {
            0..FEW => "So few samples tell nothing of what the machine does by itself.".to_owned(),
            _ => format!(
                "Of {samples} samples, whatever their distribution, such a bar has the true median in it in {:.0} of 100 cases.",
                compare::covers(samples) * 100.0
            ),
        }
    );
    // Writing to a string cannot fail: here and below.
    out.push_str("<table><tr><th>figure</th><th>claim</th><th>seen</th><th>verdict</th></tr>\n");
    for record in records {
        let _ = writeln!(
            out,
            "<tr><td><a href=\"#{}\">{}</a><br>{}</td><td>{}</td><td>{}</td><td class=\"{}\">{}</td></tr>",
            escaped(&record.name),
            escaped(&record.source),
            escaped(&record.name),
            escaped(&record.claim),
            escaped(&record.finding),
            match record.verdict {
                Verdict::Reached => "reached",
                Verdict::Missed => "missed",
                Verdict::TooFew | Verdict::DifferentSetUp | Verdict::NoClaim => "",
            },
            record.verdict
        );
    }
    out.push_str("</table>\n");
    if !failed.is_empty() {
        let _ = writeln!(out, "<h2>Not made</h2>\n<pre>{}</pre>", escaped(&failed.join("\n")));
    }
    if !others.is_empty() {
        let _ = writeln!(out, "<p>{}: {OTHERS}.</p>", escaped(&others.join(", ")));
    }
    if let Some(compared) = compared {
        against(&mut out, compared, samples);
    }
    for record in records {
        section(&mut out, record);
    }
    out.push_str("</body></html>\n");
    out
}

/// What came of the comparison with an earlier run.
fn against(out: &mut String, compared: &Comparison, samples: usize) {
    let _ = writeln!(
        out,
        "<h2>Against the earlier run</h2>\n<p>{}. {}{}</p>\n<table><tr><th>figure</th><th>outcome</th><th>how far apart</th></tr>",
        escaped(&compare::sum(compared)),
        escaped(compare::RULE),
        match samples {
            5 => String::new(),
            0..FEW => " Of so few samples, as here, it says nothing.".to_owned(),
            _ => format!(
                " Of {samples} samples, as here, it happens once in {:.0} times.",
                1.0 / compare::once(samples)
            ),
        }
    );
    for figure in &compared.figures {
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
         {} of {} s each, taken in {:.0} s; ring {}, pool {}; {}; {}. {}; Weir {}.</p>\n\
         <p><code>weir bench figure {}</code> · <a href=\"{}.csv\">CSV</a>{} · <a href=\"{}.json\">JSON</a></p></section>",
        record.name,
        escaped(&record.source),
        escaped(&record.title),
        escaped(&record.claim),
        escaped(&record.finding),
        record.verdict,
        escaped(&record.set_up),
        samples(record.effort.samples),
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
        match record.histogram_csv() {
            Some(_) => format!(" · <a href=\"{}\">histograms</a>", record.histogram_name()),
            None => String::new(),
        },
        record.name,
    );
}

/// In which mood the machine was.
fn regime(record: &Record) -> String {
    let words = match record.regime() {
        Some([least, median, most]) => {
            format!(
                "words crossed cores in {least:.0} / {median:.0} / {most:.0} ns (least / median / most)"
            )
        }
        None => "one core at a time".to_owned(),
    };
    match record.pace() {
        Some([least, median, most]) => format!(
            "{words}, a step of work that is always the same took them {least:.1} / {median:.1} / {most:.1} ns"
        ),
        None => words,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::data::tests::{record, sample};
    use crate::bench::figure::data::{Sample, add};

    fn figure(name: &str) -> Record {
        let mut figure = record(name);
        figure.claim = "grows < 10 & more".to_owned();
        figure.x.label = "µNFs in the chain".to_owned();
        figure.y.label = "million packets a second".to_owned();
        for (x, value) in [(1.0, 3.0), (1.0, 5.0), (2.0, 4.0)] {
            let histogram = vec![(1_000, 2)];
            add(&mut figure.series, "isolated", x, Sample { histogram, ..sample(value) });
        }
        figure
    }

    #[test]
    fn the_report_needs_no_network_no_script_and_no_other_file() {
        let page = page(&[figure("unf-7"), record("unf-8")], None, &["one".to_owned()], &[]);
        // An XML namespace is a name; nothing is fetched for it.
        let page = page.replace("http://www.w3.org/2000/svg", "").to_lowercase();
        for outside in [
            "http:", "https:", "//", "<script", "<link", "<iframe", "src=", "@import", "url(",
            "<img",
        ] {
            assert!(!page.contains(outside), "{outside}");
        }
        let links: Vec<&str> =
            page.split("href=\"").skip(1).filter_map(|l| l.split('"').next()).collect();
        assert!(links.contains(&"unf-7-times.csv") && links.contains(&"unf-7.csv"));
        assert!(!links.contains(&"unf-8-times.csv"), "it has no histograms");
        for link in links {
            let own = link.starts_with('#') || link.starts_with("unf-");
            assert!(own && !link.contains(':'), "{link}");
        }
    }

    #[test]
    fn the_report_is_light_and_dark() {
        let page = page(&[figure("unf-7")], None, &[], &[]);
        assert!(page.contains("color-scheme:light dark"));
        let (light, dark) = page.split_once("@media(prefers-color-scheme:dark)").unwrap();
        for colour in ["--text:", "--back:", "--line:"] {
            assert!(light.contains(colour) && dark.contains(colour), "{colour}");
        }
        // Charts are drawn on white.
        assert!(dark.contains("svg{filter:invert("));
    }

    /// A drawing's texts in one line: long ones stand in several there.
    fn texts(svg: &str) -> String {
        let pieces = svg.split('<').filter_map(|tag| Some(tag.split_once('>')?.1.trim()));
        pieces.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_figure_has_claim_finding_units_machine_class_and_error_bars_in_chart_and_page() {
        let figure = figure("unf-7");
        let page = page(std::slice::from_ref(&figure), None, &[], &[]);
        let svg = texts(&figure.chart().to_svg().unwrap());
        let machine = "a processor, 2 cores, 2000 MHz, 8 GiB, 1 NUMA nodes, kernel 6.1";
        let told = ["grows &lt; 10 &amp; more", "a finding", "missed", machine, "real-time class"];
        let axes = ["µNFs in the chain", "million packets a second", "bars reach from the least"];
        for wanted in told.iter().chain(&axes) {
            assert!(svg.contains(wanted), "{wanted}: {svg}");
            assert!(page.contains(wanted), "{wanted}: {page}");
        }
        let mut default = figure.clone();
        default.effort.real_time = false;
        assert!(texts(&default.chart().to_svg().unwrap()).contains("default class"));
        let mut some = figure.clone();
        some.series[0].places[0].samples[0].not_granted = true;
        let class =
            "real-time class in 2 of 3 samples (in the others Weir has all cores or devices only";
        assert!(texts(&some.chart().to_svg().unwrap()).contains(class), "{}", some.class());
    }

    #[test]
    fn what_was_not_made_and_what_is_of_another_run_is_said() {
        let page = page(&[], None, &["unf-5a: <why>".to_owned()], &["unf-6".to_owned()]);
        assert!(page.contains("<h2>Not made</h2>") && page.contains("unf-5a: &lt;why&gt;"));
        assert!(page.contains(&format!("<p>unf-6: {OTHERS}.</p>")));
    }

    #[test]
    fn agreeing_and_differing_figures_are_told_apart() {
        let of = |name: &str, outcome| compare::Compared {
            name: name.to_owned(),
            outcome,
            text: "why".to_owned(),
            beyond: Vec::new(),
        };
        let figures = vec![of("unf-7", Outcome::Agrees), of("unf-8", Outcome::Differs)];
        let compared = Comparison { figures, gone: vec!["unf-9a".to_owned()] };
        let page = page(&[], Some(&compared), &[], &[]);
        assert!(page.contains("1 figures agree, 0 cannot be compared; that differ: unf-8"));
        assert!(page.contains("; only the earlier run has unf-9a"));
        assert!(page.contains("<td class=\"reached\">agrees</td>"));
        assert!(page.contains("<td class=\"missed\">differs</td>"));
    }
}
