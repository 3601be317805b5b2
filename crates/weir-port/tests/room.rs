//! Who sleeps is rung for room by those that can make some, and by nobody else.
#![allow(clippy::unwrap_used)] // set-up of tests

use std::rc::Rc;
use weir_mem::{Arena, ArenaShape, Consumer, Entry, Packet, Producer, RingShape, Seq};
use weir_port::{Doorbell, Egress, LaneOut};

#[test]
fn a_sleeping_worker_asks_for_room_only_on_lanes_that_hold_something() {
    let arena = Arena::private(ArenaShape::new(16, 64)).unwrap();
    let bell = Rc::new(Doorbell::new().unwrap());
    let (mut lanes, mut takers) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let shape = RingShape::<Entry>::at_least(8);
        let (p, c) = shape.create("weir-test").unwrap();
        let ring = Producer::attach(shape, &p, &c).unwrap();
        lanes.push(LaneOut {
            ring,
            source: 0,
            ordered: false,
            closes: false,
            back: false,
            bell: bell.clone(),
        });
        takers.push(Consumer::<Entry>::attach(shape, &p, &c).unwrap());
    }
    let mut egress = Egress::new(lanes, &[0, 1], Vec::new(), 8, 1);
    for n in 0..8 {
        let packet = Entry::packet(n, 0, 60, Seq::new(n.into()), 0);
        egress.send(0, Packet::admit(packet, arena.view()).unwrap()).unwrap();
    }
    egress.publish();
    assert!(!egress.sleep(), "the first lane is full");
    takers[0].available(8);
    takers[0].claim(4); // who takes rings when half of the lane is free
    let asks: Vec<bool> = takers.iter_mut().map(|t| t.producer_waits()).collect();
    assert_eq!(asks, [true, false]);
    egress.wake();
    assert!(!takers[0].producer_waits());
    // Taken: nobody can make more room.
    takers[0].claim(4);
    assert!(egress.sleep());
    assert!(!takers.iter_mut().any(|t| t.producer_waits()));
}
