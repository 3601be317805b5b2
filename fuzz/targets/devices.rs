//! Any text as the operator's words for a device.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use weir_device::{DeviceSpec, Rate, open_rx};
use weir_fuzz::planted;

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else { return Corpus::Reject };
    match text.parse::<DeviceSpec>() {
        Err(error) => assert!(!error.to_string().is_empty()),
        // These have no words.
        Ok(DeviceSpec::Listed(_) | DeviceSpec::Replay(_)) => {
            panic!("a device without words came of {text:?}")
        }
        Ok(DeviceSpec::Null) => assert_eq!(text, "null"),
        Ok(DeviceSpec::Afp(name) | DeviceSpec::Tap(name)) => {
            assert!((1..=15).contains(&name.len()) && text.ends_with(&name), "{name}");
        }
        Ok(DeviceSpec::Pcap { rx, tx }) => {
            let named = [rx, tx].into_iter().flatten().collect::<Vec<_>>();
            assert!(!named.is_empty());
            for path in named {
                let path = path.to_str().expect("it came from text");
                assert!(!path.is_empty() && text.contains(path));
            }
        }
        Ok(DeviceSpec::Generator(spec)) => {
            let least = if spec.ipv6 { 62 } else { 60 };
            assert!((least..=9_000).contains(&spec.size), "{} bytes", spec.size);
            assert!((1..=1_000_000).contains(&spec.flows), "{} flows", spec.flows);
            assert!(
                spec.rate == Rate::Max || matches!(spec.rate, Rate::PerSecond(1..=1_000_000_000))
            );
            planted(matches!(spec.size, 63 | 65));
            // What is understood can be opened; nothing of it touches the system.
            let opened = open_rx(&DeviceSpec::Generator(spec), [0; 6], None);
            assert!(opened.is_ok_and(|device| device.is_some()));
        }
    }
    Corpus::Keep
});
