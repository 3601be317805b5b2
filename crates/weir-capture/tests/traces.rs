//! The recorded captures beside the repository: counts as their manifest states, and the same after a round trip.

#![allow(clippy::expect_used)] // Helpers of tests, which clippy does not know to be tests.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::{read_all, temporary, traces};
use weir_capture::{Fault, Format, Reader, Writer, scan};

/// A row of the manifest's table.
struct Row {
    name: String,
    pcapng: bool,
    packets: u64,
    bytes: u64,
    link_types: BTreeSet<u32>,
}

fn manifest(folder: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(folder.join("MANIFEST.md")).expect("a manifest");
    let number = |cell: &str| cell.replace(',', "").parse::<u64>().expect("a number");
    let rows: Vec<_> = text
        .lines()
        .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>())
        .filter(|cells| cells.len() > 10 && cells[1].starts_with('`'))
        .map(|cells| Row {
            name: cells[1].trim_matches('`').to_owned(),
            pcapng: cells[2].starts_with("pcapng"),
            packets: number(cells[3]),
            bytes: number(cells[4]),
            link_types: cells[5]
                .split('(')
                .skip(1)
                .map(|c| number(c.split(')').next().unwrap_or("")) as u32)
                .collect(),
        })
        .collect();
    assert!(rows.len() >= 45, "the manifest's table was not understood");
    rows
}

#[test]
fn every_trace_has_the_packets_bytes_and_link_types_of_the_manifest() {
    let Some(folder) = traces() else { return };
    for Row { name, pcapng, packets, bytes, link_types } in manifest(&folder) {
        let path = folder.join(&name);
        let summary = scan(&path).unwrap();
        assert_eq!(summary.records, packets, "{name}");
        assert_eq!(summary.file_bytes, bytes, "{name}");
        assert_eq!(
            summary.link_types.keys().map(|link| link.0).collect::<BTreeSet<_>>(),
            link_types,
            "{name}"
        );
        assert_eq!(summary.kind == weir_capture::FileKind::Pcapng, pcapng, "{name}");

        let (records, warning) = read_all(&mut Reader::open(&path).unwrap());
        assert_eq!(records.len() as u64, packets, "{name}");
        assert_eq!(
            records.iter().map(|(r, _)| r.bytes.len()).max().unwrap() as u32,
            summary.largest,
            "{name}"
        );
        assert_eq!(warning, summary.warning, "{name}");
        let fault = warning.map(|warning| warning.fault);
        assert_eq!(
            fault,
            (name == "http-pipelined-retransmissions.pcap").then_some(Fault::Cut),
            "{name}"
        );
    }
}

#[test]
fn every_trace_written_and_read_again_is_identical() {
    let Some(folder) = traces() else { return };
    for Row { name, .. } in manifest(&folder) {
        let (records, _) = read_all(&mut Reader::open(folder.join(&name)).unwrap());
        let first = &records[0].0;
        let path = temporary(&name);
        let mut writer =
            Writer::create(&path, Format::for_path(&name, first.time.format, first.link)).unwrap();
        for burst in records.chunks(32) {
            for (record, _) in burst {
                writer.append(&record.as_record()).unwrap();
            }
            writer.commit().unwrap();
        }
        let (again, warning) = read_all(&mut Reader::open(&path).unwrap());
        assert_eq!(warning, None, "{name}");
        let bare = |all: &[(common::Owned, _)]| {
            all.iter().map(|(record, _)| record.clone()).collect::<Vec<_>>()
        };
        assert!(bare(&records) == bare(&again), "{name} changed on its way");
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn every_trace_read_on_from_its_positions_gives_the_next_record() {
    let Some(folder) = traces() else { return };
    for Row { name, .. } in manifest(&folder) {
        let path = folder.join(&name);
        let (records, warning) = read_all(&mut Reader::open(&path).unwrap());
        // Each place once for one record, and a few places to the end.
        for (index, (_, position)) in records.iter().enumerate().step_by(records.len() / 100 + 1) {
            let mut reader = Reader::resume(&path, *position).unwrap();
            let next = reader.next().unwrap().map(|record| common::Owned::of(&record));
            assert_eq!(
                next.as_ref(),
                records.get(index + 1).map(|(record, _)| record),
                "{name} at {index}"
            );
        }
        for index in [0, records.len() / 2, records.len() - 1] {
            let mut reader = Reader::resume(&path, records[index].1).unwrap();
            let (rest, same) = read_all(&mut reader);
            assert!(
                rest == records[index + 1..] && same == warning,
                "{name} from {index} to the end"
            );
        }
    }
}
