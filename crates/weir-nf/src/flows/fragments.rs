//! Which datagrams' later fragments belong to a flow, as the end of its record: they go where it goes; or those of all flows.

use super::form::{Reader, RestoreError, write_len};
use super::state::FlowState;
use super::table::FlowTable;
use weir_packet::{FlowKey, FragmentTable};

/// Of one flow so many datagrams go with it at most: those of which a fragment came last.
const MOST: usize = 16;

impl<F: FlowState> FlowTable<F> {
    /// Writes down the records alone.
    pub(crate) fn save_datagrams(&self, out: &mut Vec<u8>) {
        self.fragments.iter().for_each(|table| table.save(out));
    }

    /// Writes those of all flows down.
    pub(super) fn save_fragments(&self, out: &mut Vec<u8>) {
        let fragments = out.len();
        write_len(0, out);
        if let Some(table) = &self.fragments {
            table.save(out);
            let count = (out.len() - fragments - 4) / FragmentTable::RECORD;
            let place = out.get_mut(fragments..).and_then(|o| o.first_chunk_mut());
            place.into_iter().for_each(|p| *p = (count as u32).to_le_bytes());
        }
    }

    /// Adds them to those that are there.
    pub(super) fn restore_fragments(&mut self, from: &mut Reader<'_>) -> Result<(), RestoreError> {
        for _ in 0..from.u32()? {
            let record = from.array::<{ FragmentTable::RECORD }>()?;
            if !self.fragments().restore(record) {
                return Err(RestoreError::Damaged("a fragment's flow is none"));
            }
            // One that is here is in its replica without them.
            let flow = FragmentTable::flow_of(record).filter(|_| self.notes.on);
            let flow = flow.and_then(|key| self.index.find(&key, self.index.hash(&key)));
            if let Some((flow, _)) = flow
                && let Some(slot) = self.slots.get_mut(flow)
            {
                self.notes.note(flow, slot);
            }
        }
        Ok(())
    }

    /// Writes those of one flow down.
    pub(super) fn write_fragments(&self, flow: u32, out: &mut Vec<u8>) {
        let count = out.len();
        write_len(0, out);
        if let Some(table) = &self.fragments {
            let keys = self.index.keys(flow).map(|(key, _)| key);
            let written = table.save_of(MOST, keys, out) as u32;
            let place = out.get_mut(count..).and_then(|o| o.first_chunk_mut());
            place.into_iter().for_each(|place| *place = written.to_le_bytes());
        }
    }

    /// Reads them, and the end of the record.
    pub(super) fn read_fragments(
        &mut self,
        from: &mut Reader<'_>,
        flow: u32,
    ) -> Result<(), RestoreError> {
        let count = from.u32()?;
        if count as usize > MOST {
            return Err(RestoreError::Damaged("a flow has more fragments than it may"));
        }
        for _ in 0..count {
            let record = from.array::<{ FragmentTable::RECORD }>()?;
            let own = |key: &FlowKey| self.index.keys(flow).any(|(own, _)| own.covers(key));
            let is_own = FragmentTable::flow_of(record).is_some_and(|key| own(&key));
            if !is_own || !self.fragments().restore(record) {
                return Err(RestoreError::Damaged("a fragment is not of the flow that it is with"));
            }
        }
        from.end()
    }
}
