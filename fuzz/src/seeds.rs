//! Writes the seeds: `cargo run --bin seeds` in this folder. They are committed, so that a run needs
//! only them; this says where they come from. All are made here or taken from the project's own
//! tests, demo and recording.

use std::error::Error;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use weir_capture::Reader;
use weir_fuzz::Notes;
use weir_nf::FlowTable;
use weir_packet::flow::PortKind;
use weir_packet::headers::{proto, tcp};
use weir_packet::wire::Frame;
use weir_packet::{Depth, Direction, FlowKey, parse};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// Longest frame that becomes a seed, in bytes: short ones mutate better.
const FRAME: usize = 400;

fn main() -> Result {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let recorded = recorded(&root.join("demo/http.pcap"))?;
    let mut frames = frames();
    frames.extend(recorded.iter().take(12).map(|frame| clip(frame)));
    write("headers", &frames)?;
    write("captures", &captures(&frames))?;
    write("policies", &policies(&root)?)?;
    write("filters", &filters(&frames))?;
    write("http", &http(&root)?)?;
    write("devices", &lines(DEVICES))?;
    write("offloads", &offloads())?;
    write("documents", &documents(&root)?)?;
    write("flows", &flows())?;
    write("rules", &rules())
}

/// Flows of one table each, as they are written down, and one alone.
fn flows() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for count in [0_u8, 1, 3] {
        let mut table = FlowTable::<Notes>::new(8, 1 << 40);
        let piece = Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(9, 53).payload(&[0; 90]);
        for frame in piece.fragments(48).iter().take(count.into()) {
            table.key(frame.as_slice(), &parse(frame.as_slice(), Depth::L4), 1 << 30);
        }
        let mut first = None;
        for flow in 0..count {
            let key = |port| {
                let ends = (([10, 0, 0, flow].into(), port), ([192, 0, 2, 7].into(), 443));
                FlowKey::between(ends.0, ends.1, proto::TCP, PortKind::Ports, 0)
            };
            let (Some((key, up)), Some((other, down))) = (key(4000), key(5000)) else { continue };
            if let Some(found) = table.find_by(key, up, 1 << 30, Some(tcp::SYN)) {
                let maybe = (flow > 0).then_some(7);
                *found.state = Notes { text: "text".to_owned(), list: vec![1, 70_000], maybe };
            }
            if flow == 0 {
                let _ = table.alias(other, down, 1 << 30);
            }
            first.get_or_insert(key);
        }
        all.push(copied(&mut table, first));
        let (mut saved, mut record) = (Vec::new(), Vec::new());
        if table.save(&mut saved).is_ok() {
            all.push(saved);
        }
        if first.is_some_and(|key| table.take_one(&key, &mut record).is_ok()) {
            all.push(record);
        }
    }
    all
}

fn write(target: &str, seeds: &[Vec<u8>]) -> Result {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    for (number, seed) in seeds.iter().enumerate() {
        fs::write(folder.join(format!("{number:03}")), seed)?;
    }
    println!(
        "{target}: {} seeds, {} bytes",
        seeds.len(),
        seeds.iter().map(Vec::len).sum::<usize>()
    );
    Ok(())
}

fn lines(text: &str) -> Vec<Vec<u8>> {
    text.lines().map(|line| line.as_bytes().to_vec()).collect()
}

fn clip(frame: &[u8]) -> Vec<u8> {
    frame.get(..FRAME).unwrap_or(frame).to_vec()
}

/// Frames of the demo's recording, one of each length.
fn recorded(path: &Path) -> Result<Vec<Vec<u8>>> {
    let mut reader = Reader::new(BufReader::new(fs::File::open(path)?))?;
    let mut frames: Vec<Vec<u8>> = Vec::new();
    while let Some(record) = reader.next()? {
        if frames.iter().all(|frame| frame.len() != record.bytes.len()) {
            frames.push(record.bytes.to_vec());
        }
    }
    Ok(frames)
}

/// A frame of each shape that the parser tells apart.
fn frames() -> Vec<Vec<u8>> {
    let four = || Frame::ipv4([10, 1, 2, 3], [192, 0, 2, 7]).payload(b"payload!");
    let six = || Frame::ipv6([0x20; 16], [0xfe; 16]).payload(b"payload!");
    let pad: &[u8] = &[0; 6];
    let chain: &[(u8, &[u8])] = &[
        (proto::HOP_BY_HOP, pad),
        (proto::DEST_OPTS, pad),
        (proto::ROUTING, &[0; 22]),
        (proto::FRAGMENT, pad),
        (proto::AH, &[0; 10]),
    ];
    let inner = four().udp(53, 1024).build();
    let inner = inner.get(14..).unwrap_or_default();
    let mut all = vec![
        four().tcp(1024, 80, tcp::SYN).build(),
        four().tcp(80, 1024, tcp::ACK).options(&[1, 1, 1, 0]).build(),
        four().udp(53, 1024).build(),
        four().icmp(8, 0, [0, 1, 0, 2]).build(),
        four().icmp(3, 3, [0; 4]).payload(inner).build(),
        four().proto(132).build(),
        four().proto(47).build(),
        four().vlan(5).udp(1, 2).build(),
        four().tag(0x88a8, 100).vlan(5).tcp(1, 2, tcp::ACK).build(),
        four().tag(0x9100, 0x2001).tag(0x88a8, 3).vlan(4095).udp(1, 2).build(),
        four().udp(1, 2).pad_to(80).build(),
        six().tcp(1024, 80, tcp::SYN).build(),
        six().udp(53, 1024).build(),
        six().icmp(128, 0, [0, 1, 0, 2]).build(),
        six().icmp(135, 0, [0; 4]).payload(&[1; 20]).build(),
        six().extensions(chain).udp(1, 2).build(),
        six().proto(proto::NO_NEXT).build(),
        six().proto(proto::ESP).build(),
        six().vlan(7).tag(0x8100, 8).icmp(129, 0, [0; 4]).build(),
        Frame::other(0x0806).payload(&[0, 1, 8, 0, 6, 4, 0, 1]).pad_to(60).build(),
        Frame::other(0x8035).payload(&[0, 1, 8, 0, 6, 4, 0, 3]).pad_to(60).build(),
        Frame::other(0x88cc).payload(&[2, 7, 4]).pad_to(60).build(),
        Frame::other(38).payload(&[0x42, 0x42, 3]).pad_to(60).build(),
        four().tcp(1024, 80, tcp::SYN).build().into_iter().take(30).collect(),
        vec![0; 13],
        Vec::new(),
    ];
    all.extend(four().udp(1, 2).payload(&[9; 40]).fragments(24));
    all.extend(six().udp(1, 2).payload(&[9; 40]).fragments(24));
    all
}

/// A packet to be cut, in a tunnel of each kind and in none, behind what its interface says of it; and SCTP to be finished.
fn offloads() -> Vec<Vec<u8>> {
    let four = || Frame::ipv4([10, 1, 2, 3], [192, 0, 2, 7]).payload(b"payload!");
    let six = || Frame::ipv6([0x20; 16], [0xfe; 16]).payload(b"payload!");
    let tcp_in_four = four().tcp(1024, 80, tcp::ACK).build();
    let tcp_in_six = six().vlan(5).tcp(1024, 80, tcp::ACK).build();
    let udp = four().udp(53, 1024).build();
    let sctp = four().proto(proto::SCTP).payload(&[9; 20]).build();
    let ip = tcp_in_four.get(14..).unwrap_or_default();
    let vxlan = [&[8, 0, 0, 0, 1, 2, 3, 0], &tcp_in_six[..]].concat();
    let gpe = [&[12, 0, 0, 1, 1, 2, 3, 0], ip].concat();
    let geneve = [&[1, 0, 0x65, 0x58, 1, 2, 3, 0, 7, 7, 7, 7], &tcp_in_four[..]].concat();
    let gre = [&[0xa0, 0, 8, 0, 1, 2, 0, 0, 9, 9, 9, 9], ip].concat();
    let in_udp = |inside| four().udp(50_000, 4789).payload(inside).build();
    let chain: &[(u8, &[u8])] = &[(proto::DEST_OPTS, &[0; 6])];
    // Kind of segmentation, frame, bytes from the transport header on, where the checksum is in it.
    let cases = [
        (1, tcp_in_four.clone(), 28, 16),
        (4, tcp_in_six.clone(), 28, 16),
        (5, udp, 16, 6),
        (4, in_udp(&vxlan), 28, 16),
        (1, in_udp(&gpe), 28, 16),
        (1, in_udp(&geneve), 28, 16),
        (1, in_udp(ip), 28, 16),
        (1, six().proto(proto::GRE).payload(&gre).build(), 28, 16),
        (1, six().extensions(chain).proto(proto::IPIP).payload(ip).build(), 28, 16),
        (0, sctp, 20, 8),
        (0, tcp_in_four, 28, 16),
    ];
    let seed = |(kind, frame, behind, offset): (u8, Vec<u8>, usize, u16)| {
        let start = u16::try_from(frame.len() - behind).unwrap_or(0);
        let words = [0, 3, start, offset].into_iter().flat_map(u16::to_ne_bytes);
        [1, kind].into_iter().chain(words).chain(frame).collect()
    };
    cases.into_iter().map(seed).collect()
}

/// Numbers in one byte order.
struct Build {
    bytes: Vec<u8>,
    big: bool,
}

impl Build {
    fn new(big: bool) -> Self {
        Build { bytes: Vec::new(), big }
    }

    fn words(mut self, words: &[u32]) -> Self {
        for word in words {
            self.bytes.extend(if self.big { word.to_be_bytes() } else { word.to_le_bytes() });
        }
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Two 16-bit numbers as the word that they are in this byte order.
    fn pair(&self, first: u32, second: u32) -> u32 {
        if self.big { first << 16 | second } else { second << 16 | first }
    }

    fn block(self, kind: u32, body: &[u8]) -> Self {
        let padding = body.len().next_multiple_of(4) - body.len();
        let total = u32::try_from(body.len() + padding + 12).unwrap_or(0);
        self.words(&[kind, total]).raw(body).raw(&vec![0; padding]).words(&[total])
    }
}

/// pcap and pcapng in both byte orders, with each kind of block, and damaged ones.
fn captures(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new(), b"not a capture at all".to_vec()];
    for big in [false, true] {
        let new = || Build::new(big);
        for magic in [0xa1b2_c3d4, 0xa1b2_3c4d] {
            let version = new().pair(2, 4);
            let mut file = new().words(&[magic, version, 0, 0, 65_535, 1]);
            for (second, frame) in (1..).zip(frames.iter().take(3)) {
                let length = u32::try_from(frame.len()).unwrap_or(0);
                file = file.words(&[second, 999_999, length, length + 4]).raw(frame);
            }
            let cut = file.bytes.len() - 7;
            all.push(file.bytes.iter().copied().take(cut).collect());
            all.push(file.bytes);
        }
        let version = new().pair(1, 0);
        let section = new().words(&[0x1a2b_3c4d, version, u32::MAX, u32::MAX]).bytes;
        // Options: if_tsresol nanoseconds, if_tsoffset, end.
        let options = new();
        let options = options.words(&[new().pair(9, 1)]).raw(&[9, 0, 0, 0]);
        let options = options.words(&[new().pair(14, 8), 0, 3, 0]).bytes;
        let ethernet = new().words(&[new().pair(1, 0), 96]).raw(&options).bytes;
        let cooked = new().words(&[new().pair(113, 0), 0]).bytes;
        let frame = frames.first().map(Vec::as_slice).unwrap_or_default();
        let length = u32::try_from(frame.len()).unwrap_or(0);
        let padded: Vec<u8> =
            frame.iter().copied().chain([0; 4]).take(frame.len().next_multiple_of(4)).collect();
        let comment = new().words(&[new().pair(1, 3)]).raw(b"hi!\0").words(&[0]).bytes;
        let enhanced = |interface| {
            let head = new().words(&[interface, 0x0005_0000, 77, length, length + 9]);
            head.raw(&padded).raw(&comment).bytes
        };
        let obsolete = new().words(&[new().pair(0, 1), 1, 2, length, length]).raw(&padded).bytes;
        let simple = new().words(&[length]).raw(&padded).bytes;
        let file = new()
            .block(0x0a0d_0d0a, &section)
            .block(1, &ethernet)
            .block(1, &cooked)
            .block(6, &enhanced(0))
            .block(0xbad, &[9; 13])
            .block(6, &enhanced(1))
            .block(2, &obsolete)
            .block(3, &simple)
            .block(5, &[0; 12]);
        let again = Build { bytes: file.bytes.clone(), big: !big };
        all.push(again.block(0x0a0d_0d0a, &flip(&section)).bytes);
        let cut = file.bytes.len() - 30;
        all.push(file.bytes.iter().copied().take(cut).collect());
        all.push(file.bytes);
    }
    all
}

/// 32-bit words in the other byte order; a section's body needs no more than that.
fn flip(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(4).flat_map(|word| word.iter().rev().copied()).collect()
}

fn policies(root: &Path) -> Result<Vec<Vec<u8>>> {
    let plan = root.join("crates/weir-plan/tests");
    let bad = fs::read_to_string(plan.join("bad_policies.txt"))?;
    // `=== title`, the policy, `---`, what is said about it.
    let mut all: Vec<Vec<u8>> = bad
        .split("=== ")
        .filter_map(|case| Some(case.split_once('\n')?.1.split_once("---\n")?.0))
        .map(|policy| policy.as_bytes().to_vec())
        .filter(|policy| policy.len() < 2_000)
        .collect();
    all.push(fs::read(root.join("demo/chain.weir"))?);
    all.extend(POLICIES.iter().map(|policy| policy.as_bytes().to_vec()));
    Ok(all)
}

/// A template and a request that uses it, NUL between them; descriptions stand where the template does.
fn documents(root: &Path) -> Result<Vec<Vec<u8>>> {
    let read = |path: &str| fs::read(root.join(path));
    let request = |vnf: &str| {
        format!(
            "service: s\nports: [{{ name: p, number: 0 }}, {{ name: q, number: 1 }}]\n\
             vnfs: [{{ name: v, type: {vnf} }}]\nlinks:\n  - {{ from: p, filter: tcp, to: v }}\n  \
             - {{ from: v, to: q, bandwidth: 1 Mpps }}\n\
             objective: {{ throughput: 1 Mpps, latency: {{ percentile: 99, at_most_us: 50 }} }}\n"
        )
    };
    let mut all = Vec::new();
    for (file, vnf) in
        [("edge-firewall", "EdgeFirewall"), ("app-firewall", "AppFirewall"), ("monitor", "Monitor")]
    {
        let template = read(&format!("templates/{file}.yaml"))?;
        all.push([&template[..], &[0], request(vnf).as_bytes()].concat());
    }
    for file in ["tcpip-classifier.yaml", "ids.json", "server.yaml"] {
        all.push(read(&format!("examples/descriptions/{file}"))?);
    }
    all.push([&[0], &read("examples/fig1-chain.yaml")?[..]].concat());
    let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nservice: *c\n";
    all.push([bomb.as_bytes(), &[0], bomb.as_bytes()].concat());
    let json = "{ template: 'T', nodes: [{ name: 'a', type: 'MacSwap' }], inputs: [{ name: 'in', to: 'a' }], links: \
                [{ from: 'a', to: 'o' }], outputs: [{ name: 'o' }] }\0{ service: 's', ports: [{ name: 'p', number: \
                0 }], vnfs: [{ name: 'v', type: 'T' }], links: [{ from: 'p', to: 'v' }, { from: 'v', to: 'p' }] }";
    all.push(json.as_bytes().to_vec());
    Ok(all)
}

/// a.weir and b.weir of the manual, E2's figures 14 (without its cycles) and 16, and all syntax at once.
const POLICIES: [&str; 10] = [
    "Port<0> lan;  Port<1> wan;\nMacSwap x;  MacSwap y;\npipelet { lan -> x;  x -> y;  y -> wan; }\n",
    "Port<0> lan;  Port<1> wan;\npipelet { lan [tcp port 80] -> wan;\n  lan [!(tcp port 80)] -> Drop; }\n",
    "MacSwap p; CheckIpHeader n; Port<0-7> int; Port<8> ext;\nAddress my_net 10.12.30.0/24;\n\
     pipelet { int [dst port 80] -> p; int [!(dst port 80)] -> n; p [!(dst ip my_net)] -> n;\n\
       n [CheckIpHeader.ip && !(dst ip my_net)] -> ext; n [!CheckIpHeader.ip] -> Drop; }\n",
    "RateLimiter r; Port<0-7> int;\npipelet { int [ip proto 6] -> [prio0] r; int [ip proto 17] -> [prio1] r; r -> ... }\n",
    "// c\nPort<0> lan; Port<1-3> wan; Address n 10.0.0.0/8; CheckIpHeader chk; RateLimiter r;\n\
     L3L4Filter fw { default: \"pass\", rules: [ { action: 'drop', dst_port: 0x50, }, ], /* c */ };\n\
     pipelet out { lan [tcp port 80] -> (10 Gbps) chk -> fw; chk [chk.ip && !(dst net n)] -> [prio0] r;\n\
       r -> lan; default drop; }\ndefault drop;\n",
    "Port<0> a; Port<1> b; CheckIpHeader c; MacSwap x; MacSwap y; Sink s; Clock k;\n\
     pipelet { a -> c; c [c.ip] -> x; c [c.non_ip] -> y; x -> b; y -> b; b -> s; k -> b; }\n",
    // What stands behind a NUL is included by its number.
    "include \"1\"; MacSwap x;\npipelet { lan -> x -> wan; }\n\0Port<0> lan; include '2';\0Port<1> wan; include '02';",
    "Port<0> a; Port<1> b; Port<2> c; Tee t;\npipelet { a -> t; t [tcp] -> b; t -> c; t [udp] -> Drop; }\n",
    "Port<0-7> int; Port<8-15> ext; MacSwap n; CheckIpHeader f; default drop;\n\
     pipelet { int -> n; n -> f; f [f.ip] -> ext; } pipelet { ext -> f; f [f.non_ip] -> n; n [tcp] -> int; }\n",
    "Port<0> a; Port<1> b; L3L4Filter m; L3L4Filter n;\npipelet { a [tcp] -> [one] m; a [!tcp] -> [two] m; m -> n;\n\
     n [m.one] -> b; n [m.two] -> Drop; }\n",
];

/// One filter of each primitive, each with several frames.
fn filters(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let frames: Vec<_> = frames.iter().filter(|frame| frame.len() < 130).collect();
    let one = |at: usize| frames.get(at % frames.len().max(1)).copied();
    let mut all = Vec::new();
    for (at, filter) in FILTERS.iter().enumerate() {
        for step in [at, at * 3 + 1] {
            let frame = one(step).map(Vec::as_slice).unwrap_or_default();
            all.push([filter.as_bytes(), &[0], frame].concat());
        }
    }
    all
}

const FILTERS: [&str; 29] = [
    "",
    "ip",
    "ip6 or arp or rarp",
    "tcp and not udp",
    "icmp || icmp6 || sctp",
    "vlan",
    "vlan 5 and tcp",
    "vlan and vlan 5 and udp port 2",
    "not vlan 5 or (vlan and ip6)",
    "host 10.1.2.3",
    "ip src host 10.1.2.3 and dst host 192.0.2.7",
    "net 10.1",
    "dst net 10.0.0.0 mask 255.0.0.0",
    "src and dst net 0.0.0.0/0",
    "ip6 host 2020:2020:2020:2020:2020:2020:2020:2020",
    "src net 2000::/3",
    "arp host 0.0.0.0",
    "port 80",
    "tcp src or dst port 80 or 443",
    "udp portrange 1-1023",
    "sctp dst port 0",
    "ether host 02:00:00:00:00:01",
    "ether dst 02:00:00:00:00:02 and ether src 02:00:00:00:00:01",
    "ether proto 0x88cc",
    "ip proto 47 or ip6 proto 58 or proto 17",
    "fw.safe and !(chk.ip || tcp port 80)",
    "true and not false",
    "dst ip 10.0.0.0/8 and ((tcp or udp) and ip) or arp",
    "tpc and port http or vlan 9999",
];

fn http(root: &Path) -> Result<Vec<Vec<u8>>> {
    let mut all: Vec<Vec<u8>> =
        REQUESTS.iter().map(|request| request.as_bytes().to_vec()).collect();
    let tests: PathBuf = root.join("crates/weir-http/tests");
    for (file, every) in [("attacks.txt", 3), ("benign.txt", 9)] {
        let values = fs::read_to_string(tests.join(file))?;
        let values = values.lines().filter(|line| !line.starts_with("# ") && !line.is_empty());
        for value in values.step_by(every) {
            all.push(format!("GET /a?id={value}&b=1 HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes());
        }
    }
    Ok(all)
}

const REQUESTS: [&str; 8] = [
    "GET /1 HTTP/1.1\r\n\r\nPOST /2 HTTP/1.1\r\nContent-Length: 5\r\n\r\na=b&cGET /3 HTTP/1.0\r\nHost: x\r\n\r\nGET /4",
    "POST /f HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 17\r\n\r\na=1'+or+1=1--&b=2",
    "POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;ext\r\nhello\r\n0\r\nTrailer: 1\r\n\r\nGET /d HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET http://a.example/x?b=%2527%20or%201=1 HTTP/1.1\r\nhOST:  www.example \r\nCookie: a=1; id=\"1'/**/or/**/1=1\"\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "OPTIONS * HTTP/1.1\r\nno colon\r\n folded: x\r\n\r\n",
    "\r\nGET\t/a b HTTP/1.0\nHost: a\n\n",
    "CONNECT a.example:443 HTTP/1.1\r\nCoo",
];

const DEVICES: &str = "\
null
null:x=1
pcap:rx=in.pcap,tx=out.pcapng
pcap:tx=out.pcap
pcap:
gen
gen:size=64,flows=1000,rate=max
gen:size=9000,flows=1,rate=100000,packets=10,seed=1,ip=4
gen:ip=6,size=62
gen:ip=6,size=60
gen:carry=http,ip=6,flows=3
gen:size=10
pcap:in=a
eth0";

/// The letters of a copy of a table, each behind its length, and what is left behind them: a flow that has changed.
fn copied(table: &mut FlowTable<Notes>, changes: Option<FlowKey>) -> Vec<u8> {
    let mut all = Vec::new();
    table.begin_precopy(7);
    for _ in 0..3 {
        let mut letter = Vec::new();
        if table.precopy(1, &mut letter).is_ok() {
            all.extend((letter.len() as u16).to_le_bytes());
            all.extend(letter);
        }
    }
    if let Some(found) = changes.and_then(|key| table.find(key, Direction::Up, 1 << 30)) {
        found.state.text = "changed".to_owned();
    }
    let _ = table.save_rest(&mut all);
    table.end_precopy();
    all
}

/// The demo's rules and others, each with header fields.
fn rules() -> Vec<Vec<u8>> {
    let fields: Vec<u8> = (0..=255).collect();
    let cases = RULES.iter().enumerate();
    cases
        .map(|(at, rules)| {
            let fields = fields.iter().skip(at * 24).take(64).copied();
            rules.bytes().chain([0]).chain(fields).collect()
        })
        .collect()
}

const RULES: [&str; 7] = [
    "[]",
    r#"[{"action":"pass"}]"#,
    r#"[{"action":"pass","proto":"tcp","dst_port":80},{"action":"pass","proto":"tcp","dst_port":8080},{"action":"pass","proto":"tcp","src_port":80,"tcp_flags":"ack"},{"action":"pass","proto":"icmp"},{"action":"pass","proto":"icmp6"}]"#,
    r#"[{"action":"drop","src":"10.0.0.0/8","dst":"192.0.2.1","src_port":"1024-","dst_port":80,"proto":"tcp","tcp_flags":"syn,!ack","src_mac":"aa:bb:cc:dd:ee:ff","dst_mac":"02:00:00:00:00:00/ff:00:00:00:00:00","ether_type":"ipv4","vlan":"untagged","fragment":"no"}]"#,
    r#"[{"action":"drop","src":"2001:db8::/32","proto":"icmp6","icmp_type":128,"icmp_code":0},{"action":"pass","vlan":7},{"action":"drop","fragment":"later"},{"action":"drop","ether_type":"0x86dd","dst":"::/0"}]"#,
    r#"[{"action":"drop","src":"10.0.0.0/8"},{"action":"pass","src":"10.1.0.0/16","dst_port":"-1023"},{"action":"drop","dst":"10.1.2.0/24","proto":17},{"action":"pass","src":"0.0.0.0/0","src_port":"80-90"},{"action":"drop","dst":"255.0.0.0/8"}]"#,
    r#"[{"action":"drop","src":"10.0.0.0/33"},{"action":"pass","dst_port":"90-80"},{"action":"pass","proto":"tpc"}]"#,
];
