//! NFActor's figures.

use super::Measure::{Of, Own, Throughput};
use super::{FAR_BELOW, Figure, Scale};
use crate::bench::figure::{nfactor, nfactor_moves, recovery};

const REPLICAS: Scale = Scale::of("replicas");
const EACH: Scale = Scale::log("own time of a flow, µs");

pub const ALL: &[Figure] = &[
    Figure {
        name: "nfactor-5a",
        source: "NFActor Fig. 5a",
        title: "Throughput of the NFs and of their chain by replicas",
        claim: "longer chains do less; throughput grows with worker threads, but not linearly",
        set_up: "FlowMonitor, ConnTrack, HttpParser and the chain of them, each replica one worker; the first on a core of its own, the next beside generator and sink, \
                 and so on. 1,000 TCP flows, as many packets as are taken; each has 200 bytes and carries an HTTP request, which the parser parses. The paper: worker threads of one runtime on 20 cores.",
        x: REPLICAS,
        y: FAR_BELOW,
        seconds: 82,
        measure: Throughput(nfactor::by_nf),
        judge: nfactor::judge_by_nf,
    },
    Figure {
        name: "nfactor-5b",
        source: "NFActor Fig. 5b",
        title: "Throughput of the chain by replicas",
        claim: "grows almost linearly with runtimes: 2.4 Mpps with four",
        set_up: "The chain of three, each replica one worker, on two cores that generator and sink share; by how many flows there are. As many packets as are taken, \
                 200 bytes each, with an HTTP request. The paper: 20 cores.",
        x: REPLICAS,
        y: FAR_BELOW,
        seconds: 75,
        measure: Throughput(nfactor::by_replicas),
        judge: nfactor::judge_by_replicas,
    },
    Figure {
        name: "nfactor-6a",
        source: "NFActor Fig. 6a",
        title: "Time until all flows have moved, by how many",
        claim: "almost linear in the number of flows",
        set_up: "All flows of the chain of three (FlowMonitor, ConnTrack and HttpParser; each replica one worker) go to a second replica, one by one (by name), while \
                 packets of all come, at most 1,000 at a time, as in the paper. Packets have 200 bytes and carry an HTTP request each, so all three NFs remember each flow.",
        x: Scale::log("flows"),
        y: Scale::log("ms until all have moved"),
        seconds: 8,
        measure: Own(nfactor_moves::moved_by_flows),
        judge: nfactor_moves::judge_moved_by_flows,
    },
    Figure {
        name: "nfactor-6b",
        source: "NFActor Fig. 6b",
        title: "Each flow's own time to move, by how many move",
        claim: "nearly constant; 636 µs when 100 move",
        set_up: "The moves of Fig. 6a. Each flow's own time, from the first request of its migration to the last answer, as in the paper; flows of one migration, 500 at most, move \
                 together. Of each move the flows' median and 99th percentile; the paper has the mean, which the finding tells.",
        x: Scale::log("flows"),
        y: EACH,
        seconds: 0,
        measure: Of { name: "nfactor-6a", told: nfactor_moves::own_times, anew: true },
        judge: nfactor_moves::judge_own_by_flows,
    },
    Figure {
        name: "nfactor-7a",
        source: "NFActor Fig. 7a",
        title: "Time until 6,000 flows have moved, by how many migrate at a time",
        claim: "1,000 at a time is best: less leaves flows waiting, more makes each slower",
        set_up: "6,000 flows of the chain of three, 50 packets a second of each, 200 bytes each, with an HTTP request, in migrations of 500, so many of them at a time.",
        x: Scale::of("flows that migrate at a time, at most"),
        y: Scale::of("ms until all have moved"),
        seconds: 4,
        measure: Own(nfactor_moves::moved_by_concurrency),
        judge: nfactor_moves::judge_moved_by_concurrency,
    },
    Figure {
        name: "nfactor-7b",
        source: "NFActor Fig. 7b",
        title: "Each flow's own time to move, by how many migrate at a time",
        claim: "grows with the flows that migrate at a time",
        set_up: "The moves of Fig. 7a. Each flow's own time, from the first request of its migration to the last answer, as in the paper: without its wait for its turn. Flows of one migration, 500, move together.",
        x: Scale::of("flows that migrate at a time, at most"),
        y: Scale::of("own time of a flow, µs"),
        seconds: 0,
        measure: Of { name: "nfactor-7a", told: nfactor_moves::own_times, anew: true },
        judge: nfactor_moves::judge_own_by_concurrency,
    },
    Figure {
        name: "nfactor-8",
        source: "NFActor Fig. 8",
        title: "Time until all flows have moved, beside a move by a controller",
        claim: "more than 50 % faster than OpenNF",
        set_up: "All flows (UDP, 64 bytes) of one FlowMonitor go to a second one while packets of all come: by Weir's migration, and by a controller in OpenNF's manner (loss-free, \
                 order-preserving; state and packets go through it, over sockets). The controller is ours and no part of OpenNF: no Java, no JSON, one server. The paper: \
                 OpenNF with PRADS.",
        x: Scale::log("flows"),
        y: Scale::log("ms until all have moved"),
        seconds: 10,
        measure: Own(nfactor_moves::moved_by_a_controller),
        judge: nfactor_moves::judge_moved_by_a_controller,
    },
    Figure {
        name: "nfactor-9a",
        source: "NFActor Fig. 9a",
        title: "Throughput with and without replication by replicas of the chain",
        claim: "a replica of every 10th packet costs around 60 %; 0.85 Mpps with four runtimes",
        set_up: "The chain of three, 128 flows, as many packets as are taken, 200 bytes each, with an HTTP request; on two cores that generator and sink share; what it remembers is kept in shared memory on the same server. The paper: on other \
                 runtimes, over the network.",
        x: REPLICAS,
        y: FAR_BELOW,
        seconds: 43,
        measure: Throughput(nfactor::replicated),
        judge: nfactor::judge_replicated,
    },
    Figure {
        name: "nfactor-9b",
        source: "NFActor Fig. 9b",
        title: "Time until a killed runtime has rejoined, by runtimes and rate",
        claim: "3.3 s until a restarted runtime has rejoined, whatever the rate and the number of runtimes",
        set_up: "The chain of three, each runtime one worker, replicated with every packet; 10 packets a second of each flow, 200 bytes each, with an HTTP request. When all flows are there, one runtime is \
                 killed with kill -9, its successor reads the replica in shared memory; one that has fewer flows then than before is no sample. The first packet is looked for apart. Runtimes beyond the second share cores. The paper: from the controller's noticing, from other runtimes over the network, with a container to \
                 start, every 10th packet replicated.",
        x: Scale::log("million packets a second in all"),
        y: Scale::log("ms from kill -9"),
        seconds: 14,
        measure: Own(recovery::by_rate),
        judge: recovery::judge_by_rate,
    },
];
