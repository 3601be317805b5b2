//! Linking the crate is all it takes: this test names none of its types.

use weir_nfs as _;

#[test]
fn linking_the_crate_registers_every_nf_by_its_policy_name() {
    let names: Vec<_> = weir_nf::registrations().iter().map(|r| r.descriptor.name).collect();
    let all = [
        "Busy",
        "CheckIpHeader",
        "ConnTrack",
        "CountSubnet",
        "CountUrl",
        "Drop",
        "FlowMonitor",
        "HttpClassifier",
        "HttpParser",
        "IcmpError",
        "L3L4Filter",
        "L4LoadBalancer",
        "LoadBalancer",
        "MacSwap",
        "Napt",
        "Null",
        "OrderFragments",
        "PacketSizeHistogram",
        "Policer",
        "Tee",
        "TtlDecrement",
        "ValidateUrl",
    ];
    assert_eq!(names, all);
}

#[test]
fn every_nf_shows_what_its_configuration_is_when_nothing_is_written() {
    let env = weir_nf::Env::default();
    for nf in weir_nf::registrations() {
        let name = nf.descriptor.name;
        let schema = nf.schema();
        let keys = schema.pointer("/properties").and_then(|p| p.as_object()).into_iter().flatten();
        let mut written = serde_json::Map::new();
        for (key, property) in keys {
            let default = property.get("default");
            written.insert(key.clone(), default.unwrap_or_else(|| panic!("{name}: {key}")).clone());
        }
        let made = nf.make(&written.into(), &env);
        assert!(made.is_ok(), "{name}: its defaults are a configuration: {:?}", made.err());
    }
}
