//! Linking the crate is all it takes: this test names none of its types.

use weir_nfs as _;

#[test]
fn linking_the_crate_registers_every_nf_by_its_policy_name() {
    let names: Vec<_> = weir_nf::registrations().iter().map(|r| r.descriptor.name).collect();
    let all = [
        "Busy",
        "CheckIpHeader",
        "CountSubnet",
        "CountUrl",
        "Drop",
        "HttpClassifier",
        "IcmpError",
        "L3L4Filter",
        "MacSwap",
        "Null",
        "PacketSizeHistogram",
        "Tee",
        "TtlDecrement",
        "ValidateUrl",
    ];
    assert_eq!(names, all);
}
