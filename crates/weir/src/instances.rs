//! `--instances`: how many instances of an NF there are, and how packets are divided over them.

use crate::policy::replicas_of;
use weir_plan::service::{AffinityField, affinity_of};
use weir_plan::{Affinity, Asked, MAX_INSTANCES};

/// How it is written.
const FORM: &str = "write NF=NUMBER, such as fw=2; NF=2:1 gives two of these weights; behind it may stand ,least or ,rr or \
                    ,by=FIELD+FIELD and ,symmetric";

/// Understands `NF=3`, `NF=2:1` (weights), and behind it `,least`, `,rr` or `,by=src_ip+dst_ip` and `,symmetric`, as `--instances`
/// is given; `A+B=3` are three replicas of a segment of both.
pub fn parse(text: &str) -> Result<(String, Asked), String> {
    let (name, rest) = text.split_once('=').ok_or(FORM)?;
    if name.is_empty() {
        return Err(format!("`{text}` names no NF: {FORM}"));
    }
    let mut parts = rest.split(',');
    let weights = weights(text, parts.next().unwrap_or(""))?;
    let (least_loaded, affinity) = division(text, parts)?;
    replicas_of(name)?;
    Ok((name.to_owned(), Asked { least_loaded, affinity, ..Asked::weighted(weights) }))
}

fn weights(text: &str, numbers: &str) -> Result<Vec<u32>, String> {
    let number =
        |text: &str| text.parse::<u32>().map_err(|_| format!("`{text}` is not a number: {FORM}"));
    let weights = match numbers.split_once(':') {
        None => match number(numbers)? {
            count @ 1..=MAX_INSTANCES => Asked::equal(count).weights,
            count => return Err(format!("{count} instances: 1 to {MAX_INSTANCES} can be")),
        },
        Some(_) => numbers.split(':').map(number).collect::<Result<_, _>>()?,
    };
    if weights.iter().all(|weight| *weight == 0) {
        return Err(format!(
            "`{text}`: no instance has a weight above 0, so none would get packets"
        ));
    }
    Ok(weights)
}

/// Whether to the least loaded, and by what else than the NF's own affinity.
fn division<'t>(
    text: &str,
    parts: impl Iterator<Item = &'t str>,
) -> Result<(bool, Option<Affinity>), String> {
    let (mut how, mut fields, mut symmetric) = (None, None, false);
    for part in parts {
        match part.split_once('=') {
            None if matches!(part, "least" | "rr") && how.is_none() => how = Some(part),
            None if part == "symmetric" && !symmetric => symmetric = true,
            Some(("by", list)) if fields.is_none() => fields = Some(chosen(list)?),
            None if matches!(part, "least" | "rr" | "symmetric") => {
                return Err(format!("`{text}` says twice how packets are divided: {FORM}"));
            }
            Some(("by", _)) => {
                return Err(format!("`{text}` says `by` twice: name all fields in one"));
            }
            _ => {
                return Err(format!(
                    "`{part}`: behind the number only `least`, for the least loaded, `rr`, in turn, and `by=...` and `symmetric` can \
                     be, for packets that are to meet at one instance"
                ));
            }
        }
    }
    match (how, fields, symmetric) {
        (None, None, false) => Ok((false, None)),
        (Some("least"), None, false) => Ok((true, None)),
        (Some(_), None, false) => Ok((false, Some(Affinity::None))),
        (Some(how), ..) => Err(format!(
            "`{text}`: with `{how}` packets of a flow go to any instance, by fields they meet at one; leave one of the two out"
        )),
        (None, fields, symmetric) => {
            let fields = fields.unwrap_or_else(|| AffinityField::ALL.to_vec());
            let affinity = affinity_of(&fields, symmetric).ok_or_else(|| {
                format!(
                    "`{text}`: the fields of one direction are not those of the other; with `symmetric` name both addresses or none and \
                     both ports or none"
                )
            })?;
            Ok((false, Some(affinity)))
        }
    }
}

/// The fields of `src_ip+dst_ip`.
fn chosen(list: &str) -> Result<Vec<AffinityField>, String> {
    let names = || AffinityField::ALL.map(AffinityField::name).join(", ");
    let field = |name: &str| {
        let found = AffinityField::ALL.into_iter().find(|field| field.name() == name);
        found.ok_or_else(|| {
            format!("`{name}` is no field that packets are divided by; there are {}", names())
        })
    };
    list.split('+').map(field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_plan::{Field, FieldSet};

    #[test]
    fn packets_are_divided_by_the_fields_that_are_named() {
        let by = |text: &str| parse(text).map(|(_, asked)| (asked.least_loaded, asked.affinity));
        let fields = |fields: &[Field], symmetric| {
            let fields = FieldSet::of(fields);
            Ok((false, Some(Affinity::Fields { fields, symmetric })))
        };
        assert_eq!(by("x=2"), Ok((false, None)));
        assert_eq!(by("x=2:1,least"), Ok((true, None)));
        assert_eq!(by("x=2,rr"), Ok((false, Some(Affinity::None))));
        assert_eq!(by("x=2,by=src_ip"), Ok((false, Some(Affinity::Source))));
        assert_eq!(by("x=2,by=dst_ip+dst_port"), fields(&[Field::IpDst, Field::L4Dst], false));
        let pair = [Field::IpSrc, Field::IpDst];
        assert_eq!(by("x=2,by=src_ip+dst_ip,symmetric"), fields(&pair, true));
        assert_eq!(by("x=2,symmetric,by=dst_ip+src_ip"), fields(&pair, true));
        let all = "x=2,by=src_ip+dst_ip+proto+src_port+dst_port";
        assert_eq!(by(all), Ok((false, Some(Affinity::Tuple))));
        assert_eq!(by("x=2,symmetric"), Ok((false, Some(Affinity::Flow))));
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_the_cure() {
        for (text, said) in [
            (
                "x=2,by=mac",
                "`mac` is no field that packets are divided by; there are src_ip, dst_ip, proto",
            ),
            ("x=2,by=", "`` is no field"),
            ("x=2,by=src_ip,symmetric", "name both addresses or none"),
            ("x=2,by=src_ip,by=dst_ip", "name all fields in one"),
            ("x=2,least,by=src_ip", "leave one of the two out"),
            ("x=2,rr,symmetric", "leave one of the two out"),
            ("x=2,rr,least", "says twice how"),
            ("x=2,most", "only `least`"),
        ] {
            let refused = parse(text).err();
            assert!(
                refused.as_deref().is_some_and(|why| why.contains(said)),
                "{text}: {refused:?}"
            );
        }
    }
}
