//! `--scale`: NFs whose instances become more and fewer while they run.

use crate::policy::{self, PolicyFailure};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use weir_control::scale::{Decision, Happened, Way};
use weir_control::wiring::ScaleOptions;
use weir_plan::{Asked, MAX_INSTANCES};

/// Flows that move in one step unless told otherwise (NFActor §5).
const STEP: u32 = 500;
/// Seconds without another change after one, unless told otherwise.
const COOL: f64 = 2.0;
/// Seconds after which flows of an instance that is to be emptied move although they have not ended, unless told otherwise.
const OLD_FLOWS: f64 = 60.0;
/// Most of these.
const LONGEST: f64 = 3600.0;

/// Understands `NF=1:4`, and behind it `,moves`, `,old-flows-end` (or `=60`) or `,rebalance`, `,step=500`, `,cool=2`, as `--scale` is given.
pub fn parse(text: &str) -> Result<(String, ScaleOptions), String> {
    let form = "write NF=MIN:MAX, such as fw=1:4; behind it may stand ,moves or ,old-flows-end[=SECONDS] or \
                ,rebalance and ,step=FLOWS and ,cool=SECONDS";
    let (name, rest) = text.split_once('=').ok_or(form)?;
    if name.is_empty() {
        return Err(format!("`{text}` names no NF: {form}"));
    }
    let mut parts = rest.split(',');
    policy::replicas_of(name)?;
    let limits = parts.next().and_then(|limits| limits.split_once(':')).ok_or(form)?;
    let number =
        |text: &str| text.parse::<u16>().map_err(|_| format!("`{text}` is not a number: {form}"));
    let limits = (number(limits.0)?, number(limits.1)?);
    if limits.0 == 0 || limits.0 >= limits.1 || u32::from(limits.1) > MAX_INSTANCES {
        return Err(format!(
            "`{}:{}`: at least one instance, at most {MAX_INSTANCES}, and the second number larger than the first",
            limits.0, limits.1
        ));
    }
    let cool = Duration::from_secs_f64(COOL);
    let mut options = ScaleOptions { limits, way: None, step: STEP, cool };
    let mut given = BTreeSet::new();
    for part in parts {
        let kind = match part.split_once('=') {
            Some(("old-flows-end", _)) | None => "way",
            Some((kind, _)) => kind,
        };
        if !given.insert(kind) {
            let what = if kind == "way" { "how its instances share what comes" } else { kind };
            return Err(format!("`{text}` says twice {what}: {form}"));
        }
        match part.split_once('=') {
            None if part == "moves" => options.way = Some(Way::Moves),
            None if part == "rebalance" => options.way = Some(Way::Rebalance),
            None if part == "old-flows-end" => {
                options.way = Some(Way::OldFlowsEnd(Duration::from_secs_f64(OLD_FLOWS)));
            }
            Some(("old-flows-end", text)) => {
                options.way = Some(Way::OldFlowsEnd(seconds(text)?));
            }
            Some(("step", flows)) => match flows.parse::<u32>() {
                Ok(flows @ 1..) => options.step = flows,
                _ => return Err(format!("`{flows}` flows in a step: one at least")),
            },
            Some(("cool", text)) => options.cool = seconds(text)?,
            _ => return Err(format!("`{part}` is unknown: {form}")),
        }
    }
    Ok((name.to_owned(), options))
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds @ 0.0..=LONGEST) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("`{text}` seconds: 0 to {LONGEST} can be")),
    }
}

/// By NF what is asked for; each is given once.
pub fn scaled(
    given: &[(String, ScaleOptions)],
) -> Result<BTreeMap<String, ScaleOptions>, PolicyFailure> {
    let mut all = BTreeMap::new();
    for (nf, options) in given {
        if all.insert(nf.clone(), *options).is_some() {
            return Err(PolicyFailure::ScaleTwice(nf.clone()));
        }
    }
    Ok(all)
}

/// Adds what that means for the plan to the numbers of instances that are `asked` for.
pub fn plan(
    given: &[(String, ScaleOptions)],
    asked: &mut BTreeMap<String, Asked>,
) -> Result<(), PolicyFailure> {
    for (nf, options) in scaled(given)? {
        let (min, max) = options.limits;
        for (nf, scaling) in policy::each(&nf, Asked::scaling(min.into(), max.into())) {
            if asked.insert(nf.clone(), scaling).is_some() {
                return Err(PolicyFailure::ScaleAndInstances(nf));
            }
        }
    }
    Ok(())
}

/// A decision in words.
pub fn told(nf: &str, decision: &Decision) -> String {
    let Decision { what, instance, instances, flows, why } = decision;
    let (does, more) = match what {
        Happened::Out => (format!("instance {instance} is taken into use"), String::new()),
        Happened::In => (format!("instance {instance} is being emptied"), String::new()),
        Happened::Even => ("shares are being made even".to_owned(), String::new()),
        Happened::Done => ("done".to_owned(), format!(", {flows} flows moved")),
        Happened::GivenUp => ("given up".to_owned(), format!(", {flows} flows moved")),
        Happened::AtMost => ("overloaded".to_owned(), String::new()),
        Happened::Gone | Happened::ByHand => (format!("instance {instance}"), String::new()),
    };
    format!("scaling {nf}: {does} ({instances} in use{more}): {why}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
    use super::*;

    #[test]
    fn limits_and_what_else_is_wanted_are_read() {
        let (nf, options) = parse("fw/spread=1:4").unwrap();
        let cool = Duration::from_secs(2);
        let plain = ScaleOptions { limits: (1, 4), way: None, step: 500, cool };
        assert_eq!((nf.as_str(), options), ("fw/spread", plain));
        assert_eq!(parse("mon+fw=1:4").unwrap().0, "mon+fw");
        let (_, options) = parse("fw=2:3,cool=0.25,moves,step=7").unwrap();
        let (way, cool) = (Some(Way::Moves), Duration::from_millis(250));
        assert_eq!(options, ScaleOptions { limits: (2, 3), way, step: 7, cool });
        assert_eq!(parse("fw=1:2,rebalance").unwrap().1.way, Some(Way::Rebalance));
        for (text, seconds) in [("fw=1:2,old-flows-end", 60), ("fw=1:2,old-flows-end=9", 9)] {
            let way = Way::OldFlowsEnd(Duration::from_secs(seconds));
            assert_eq!(parse(text).unwrap().1.way, Some(way));
        }
        for (text, why) in [
            ("fw", "write NF=MIN:MAX"),
            ("fw=3", "write NF=MIN:MAX"),
            ("=1:2", "names no NF"),
            ("mon+=1:2", "each once"),
            ("mon+fw+mon=1:2", "each once"),
            ("fw=a:2", "`a` is not a number"),
            ("fw=0:2", "`0:2`: at least one instance"),
            ("fw=2:2", "the second number larger"),
            ("fw=1:2,step=1,step=9", "says twice step"),
            ("fw=1:2,moves,rebalance", "says twice how its instances share"),
            ("fw=1:65", "at most 64"),
            ("fw=1:2,step=0", "`0` flows"),
            ("fw=1:2,cool=-1", "`-1` seconds"),
            ("fw=1:2,cool=NaN", "`NaN` seconds"),
            ("fw=1:2,later", "`later` is unknown"),
            ("fw=1:2,old-flows-end=-1", "`-1` seconds"),
            ("fw=1:2,old-flows-end=9,moves", "says twice how its instances share"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
