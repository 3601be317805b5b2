//! A device that swallows everything.

use crate::{DeviceError, Dropped, Place, Send};
use weir_mem::Arena;
use weir_packet::Packet;

/// Packets sent here vanish, and are counted.
#[derive(Debug, Default)]
pub struct Null;

impl Send for Null {
    fn send(
        &mut self,
        _packets: &[Packet],
        _arena: &Arena,
        _dropped: &mut Dropped,
    ) -> Result<(), DeviceError> {
        Ok(())
    }

    fn touches(&self) -> bool {
        false
    }

    fn commit(&mut self) -> Result<Place, DeviceError> {
        Ok([0; 6])
    }
}
