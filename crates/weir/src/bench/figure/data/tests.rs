//! What figures' files hold.

use super::*;
use crate::bench::figure::values::median;

pub fn sample(value: f64) -> Sample {
    Sample::of(value, [1.0, 2.0])
}

/// Two samples of each point.
pub fn sampling() -> SampleArgs {
    SampleArgs {
        samples: 2,
        seconds: 0.4,
        ring: 1,
        pool: 1,
        device_core: 0,
        chain_core: 1,
        no_real_time: false,
        searches: false,
        patience: 1.0,
        begins: std::cell::Cell::default(),
    }
}

/// A figure without samples.
pub fn record(name: &str) -> Record {
    let axis = |label: &str| Axis { label: label.to_owned(), log: false, names: Vec::new() };
    let machine = Machine {
        processor: "a processor".to_owned(),
        cores: 2,
        kernel: "6.1".to_owned(),
        mhz: 2_000,
        memory_gib: 8,
        numa_nodes: 1,
    };
    let effort = Taken {
        samples: 5,
        seconds: 0.4,
        ring: 1,
        pool: 1,
        real_time: true,
        cores: [0, 1],
        program: 7,
        method: METHOD,
        had: Vec::new(),
    };
    Record {
        name: name.to_owned(),
        source: "a paper".to_owned(),
        title: "a title".to_owned(),
        claim: "a claim".to_owned(),
        set_up: "a set-up".to_owned(),
        finding: "a finding".to_owned(),
        verdict: Verdict::Missed,
        x: axis("x"),
        y: axis("y"),
        machine,
        version: "0".to_owned(),
        effort,
        took_seconds: 1.0,
        series: Vec::new(),
        left_out: Vec::new(),
        failed: Vec::new(),
    }
}

#[test]
fn samples_of_one_place_stay_together_and_none_is_left_out() {
    let mut series = Vec::new();
    for value in [3.0, 900.0, 1.0] {
        add(&mut series, "a", 4.0, sample(value));
        add(&mut series, "b", 4.0, sample(value * 2.0));
    }
    add(&mut series, "a", 5.0, sample(7.0));
    assert_eq!((series.len(), series[0].places.len()), (2, 2));
    assert_eq!(series[0].places[0].spread(), Some([1.0, 3.0, 900.0]));
    assert_eq!(median(&series, "b", 4.0), 6.0);
    assert!(median(&series, "b", 5.0).is_nan());
}

#[test]
fn a_file_that_is_damaged_costs_no_other_and_a_folder_without_any_is_an_error() {
    let folder = crate::bench::own::Folder::new("weir-data").unwrap();
    assert!(matches!(read_all(folder.path()), Err(BenchError::NoFigures(_))));
    let none = read_all(&folder.path().join("none"));
    assert!(matches!(none, Err(BenchError::Read { .. })), "no such folder");
    let sound = |name: &str| Record { series: round(&["a"]), ..record(name) };
    sound("unf-7").write(&folder.path().join("unf-7.json")).unwrap();
    std::fs::write(folder.path().join("unf-6.json"), "{").unwrap();
    let Figures { records, damaged } = read_all(folder.path()).unwrap();
    assert_eq!((records.len(), records[0].name.as_str()), (1, "unf-7"));
    assert!(damaged.len() == 1 && damaged[0].contains("unf-6.json"), "{damaged:?}");
    std::fs::remove_file(folder.path().join("unf-7.json")).unwrap();
    assert!(matches!(read_all(folder.path()), Err(BenchError::Failed(_))));
}

#[test]
fn what_is_no_ordinary_file_or_of_another_figure_is_damaged_and_nothing_waits_for_it() {
    let folder = crate::bench::own::Folder::new("weir-strange").unwrap();
    let at = |name: &str| folder.path().join(format!("{name}.json"));
    std::os::unix::fs::symlink("/dev/zero", at("unf-5a")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("unf-5b"), rustix::fs::Mode::RWXU).unwrap();
    std::fs::create_dir(at("unf-6")).unwrap();
    let other = Record { series: round(&["a"]), ..record("../<b>") };
    other.write(&at("unf-7")).unwrap();
    for name in ["unf-5a", "unf-5b", "unf-6"] {
        assert!(matches!(read(&at(name)), Err(BenchError::NoFile { .. })), "{name}");
    }
    let why = read(&at("unf-7")).unwrap_err().to_string();
    assert!(why.contains("unf-7.json") && why.contains("\"../<b>\""), "{why}");
}

#[test]
fn what_is_no_number_could_not_be_read_again() {
    let with = |value: f64| Sample { tail: Some([1.0, value]), ..sample(1.0) };
    assert!(sample(1.0).is_finite() && with(2.0).is_finite());
    for odd in [f64::NAN, f64::INFINITY] {
        assert!(!sample(odd).is_finite() && !with(odd).is_finite());
        let text = serde_json::to_string(&sample(odd)).unwrap();
        assert!(serde_json::from_str::<Sample>(&text).is_err());
    }
}

#[test]
fn a_value_that_is_read_and_written_again_is_the_same_to_its_last_digit() {
    for value in [1.2338803808171699, 0.1 + 0.2, 4.35e-9, 1e22] {
        let text = serde_json::to_string(&sample(value)).unwrap();
        let read: Sample = serde_json::from_str(&text).unwrap();
        assert_eq!(read.value.to_bits(), value.to_bits());
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }
}

/// Lines of one place with one sample each.
fn round(lines: &[&str]) -> Vec<Series> {
    let mut series = Vec::new();
    lines.iter().for_each(|name| add(&mut series, name, 1.0, sample(1.0)));
    series
}

#[test]
fn what_no_run_leaves_is_no_figure() {
    let of = |change: &dyn Fn(&mut Record)| {
        let mut figure = Record { series: round(&["a"]), ..record("a") };
        change(&mut figure);
        figure.unsound()
    };
    assert_eq!(of(&|_| ()), None);
    assert_eq!(of(&|f| f.series.clear()), Some("it has no samples, and does not say why"));
    let reason = || vec!["a rival (not installed)".to_owned()];
    assert_eq!(of(&|f| (f.series.clear(), f.left_out = reason()).1), None);
    let hung = |times| Failed { line: "b".to_owned(), x: 1.0, why: "it hung".to_owned(), times };
    assert_eq!(of(&|f| (f.series.clear(), f.failed = vec![hung(1)]).1), None);
    assert!(of(&|f| f.failed = vec![hung(6)]).is_some());
    assert!(of(&|f| f.failed = vec![hung(1); MOST_FAILED + 1]).is_some());
    assert!(of(&|f| f.series[0].places.clear()).is_some());
    assert!(of(&|f| f.series[0].places[0].samples.clear()).is_some());
    assert!(of(&|f| f.effort.samples = 0).is_some());
    assert!(of(&|f| f.series[0].places[0].samples[0].value = -1.0).is_some());
    // No sum wraps.
    let most = [usize::MAX, 1].map(hung);
    assert_eq!(Failed::left(&most, 5), 0);
}

#[test]
fn a_figure_grows_by_rounds_and_a_beginning_counts_as_one() {
    let args = sampling();
    let mut figure = record("a");
    figure.version = VERSION.to_owned();
    figure.effort = Taken { samples: 0, ..(&args).into() };
    for samples in 1..=2 {
        figure.take_in(round(&["a", "b"]), Vec::new());
        assert_eq!(figure.series[1].places[0].samples.len(), samples);
        assert!(figure.is_of(&figure.machine, &args), "{samples} of two");
    }
    figure.take_in(round(&["a", "b"]), Vec::new());
    assert!(!figure.is_of(&figure.machine, &args), "more than asked for");
}

#[test]
fn good_samples_stay_when_one_of_another_round_fails_and_it_is_counted() {
    let mut figure = record("a");
    figure.effort.samples = 0;
    figure.take_in(round(&["a", "b"]), Vec::new());
    // The second round has no b.
    Failed::count(&mut figure.failed, "b", 1.0, "it hung");
    figure.take_in(round(&["a"]), Vec::new());
    figure.take_in(round(&["a", "b"]), Vec::new());
    let rounds = |at: usize| -> Vec<usize> {
        figure.series[at].places[0].samples.iter().map(|s| s.round).collect()
    };
    assert_eq!((rounds(0), rounds(1)), (vec![1, 2, 3], vec![1, 3]));
    let mut failed = figure.failed.clone();
    Failed::count(&mut failed, "b", 1.0, "it hung");
    assert_eq!(Failed::told(&failed, 3), "b at 1: 2 of 3 (it hung)");
}
