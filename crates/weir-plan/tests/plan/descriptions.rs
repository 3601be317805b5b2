//! Descriptions of NFs without code: what they mean, and what is refused.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use weir_plan::service::{Syntax, describe};
use weir_plan::{Affinity, Effect, Field, FieldSet, TagInfo, TagKind, Touch, render};

/// All that is said about a document that must not be taken.
fn refused<T>(text: &str, read: Result<T, Vec<weir_plan::PolicyError>>) -> String {
    match read {
        Ok(_) => panic!("this was taken:\n{text:.300}"),
        Err(errors) => render(&errors, "bad.yaml", text),
    }
}

#[test]
fn what_a_descriptor_leaves_out_is_the_worst() {
    let paper = "PacketProcessorClass: \"TCPIPClassifier\"\nStateful: \"Yes\"\nL2Header: \"NOP\"\nL3Header: \"ReadOnly\"\n";
    let described = describe(paper, Syntax::Yaml).unwrap();
    let info = &described[0].info;
    assert_eq!(info.name, "TCPIPClassifier");
    let access = info.work.access;
    assert_eq!((access.l2, access.l3), (Touch::Nop, Touch::Read));
    assert_eq!((access.l4, access.payload), (Touch::Write, Touch::Write));
    assert!(info.may_drop && info.writes_packets && info.work.keeps);
    assert_eq!(info.work.effect, Effect::External);

    let mild = "PacketProcessorClass: C\nStateful: No\nL2Header: NOP\nL3Header: ReadOnly\nL4Header: ReadOnly\n\
                Payload: NOP\nMayDrop: No\nOutputs: [a, b]\n";
    let info = &describe(mild, Syntax::Yaml).unwrap()[0].info;
    assert!(!info.may_drop && !info.writes_packets && !info.work.keeps);
    assert_eq!((info.work.effect, info.outputs.len()), (Effect::Pure, 2));

    let said = refused(mild, describe(&mild.replace("ReadOnly", "ReadOften"), Syntax::Yaml));
    assert!(said.contains("`ReadOnly`"), "{said}");
}

#[test]
fn an_nf_description_gives_outputs_by_attribute_affinity_and_cost() {
    let text = "nf: Ids\nports: { inputs: [in], outputs: [vp0, vp1] }\n\
        attributes:\n  safe: { method: port, port: vp1 }\n  url: { method: metadata, type: text }\n  odd: { method: metadata }\n\
        affinity: [dst_port, src_ip, dst_ip, src_port, proto]\nscaling: { cores: true }\nrate: { per_core_ghz: 0.5 Mpps }\n";
    let described = describe(text, Syntax::Yaml).unwrap();
    let info = &described[0].info;
    assert_eq!(info.outputs, ["vp0", "safe"]);
    let tag = |name: &str, kind| TagInfo { name: name.to_owned(), kind };
    assert_eq!(info.tags, [tag("odd", TagKind::Flag), tag("url", TagKind::Text)]);
    assert_eq!((info.work.affinity, info.work.cost_cycles), (Affinity::Tuple, 2000));
    assert!(described[0].scaling.cores && !described[0].scaling.servers);
    for (from, to, says) in [
        ("port: vp1", "port: vp2", "`vp0`, `vp1`"),
        ("0.5 Mpps", "1 Gbps", "add `packet_bytes`"),
        ("0.5 Mpps", "0 Mpps", "above zero"),
        (
            "affinity: [dst_port, src_ip, dst_ip, src_port, proto]",
            "flow: []",
            "no field makes no flow",
        ),
        ("{ method: metadata }", "{ method: port }", "add `port`"),
        (
            "{ method: metadata, type: text }",
            "{ method: port, port: vp0, type: text }",
            "leave `type` out",
        ),
        ("{ method: metadata }", "{ method: port, port: vp1 }", "tells `odd` already"),
        ("  safe: ", "  vp0: ", "two ports are called `vp0`"),
        ("[vp0, vp1]", "[vp0, vp1, vp0]", "two ports are called `vp0`"),
        ("inputs: [in]", "inputs: [in, in]", "two ports are called `in`"),
    ] {
        let text = text.replace(from, to);
        let said = refused(&text, describe(&text, Syntax::Yaml));
        assert!(said.contains(says), "{to}: {said}");
    }
}

#[test]
fn packets_meet_by_the_fields_of_affinity_else_by_those_that_form_a_flow_else_by_their_source() {
    let affinity = |text: &str| {
        let text = format!("nf: Ids\nports: {{ inputs: [in], outputs: [out] }}\n{text}");
        describe(&text, Syntax::Yaml).unwrap()[0].info.work.affinity
    };
    let some =
        |fields: &[Field], symmetric| Affinity::Fields { fields: FieldSet::of(fields), symmetric };
    let fields = |fields: &[Field]| some(fields, false);
    assert_eq!(affinity("affinity: [dst_ip, proto]"), fields(&[Field::IpDst, Field::IpProto]));
    assert_eq!(affinity("flow: [src_ip, dst_ip]"), fields(&[Field::IpSrc, Field::IpDst]));
    assert_eq!(affinity("flow: [src_ip, dst_ip]\naffinity: [dst_port]"), fields(&[Field::L4Dst]));
    assert_eq!(affinity("flow: [src_ip, dst_ip]\naffinity: []"), Affinity::None);
    assert_eq!(affinity(""), Affinity::Source);
    // Both directions, when asked.
    let both = some(&[Field::IpSrc, Field::IpDst], true);
    assert_eq!(affinity("affinity: [src_ip, dst_ip]\nsymmetric: true"), both);
    assert_eq!(affinity("symmetric: true"), Affinity::Flow);
    let text = "nf: Ids\naffinity: [dst_ip]\nsymmetric: true";
    let said = refused(text, describe(text, Syntax::Yaml));
    assert!(said.contains("the fields of one direction are not those of the other"), "{said}");
}
