//! An array that grows without ever being copied.

/// Elements per page: growing by one costs as much as making a page.
const PAGE: u32 = 1 << 9;

/// Elements by number, in pages: a plain vector would be copied whole whenever it doubles, which at
/// millions of flows is a pause, and needs thrice the memory for that moment.
pub(crate) struct Paged<T> {
    pages: Vec<Box<[T; PAGE as usize]>>,
}

impl<T> Default for Paged<T> {
    fn default() -> Self {
        Paged { pages: Vec::new() }
    }
}

impl<T: Default> Paged<T> {
    #[inline]
    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        self.pages.get((at / PAGE) as usize)?.get((at % PAGE) as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.pages.get_mut((at / PAGE) as usize)?.get_mut((at % PAGE) as usize)
    }

    /// The element `at`, which is made when there is none; those before it too.
    #[inline]
    pub(crate) fn reach(&mut self, at: u32) -> Option<&mut T> {
        while self.pages.len() <= (at / PAGE) as usize {
            let page: Box<[T]> = (0..PAGE).map(|_| T::default()).collect();
            // It has just so many.
            self.pages.push(page.try_into().ok()?);
        }
        self.get_mut(at)
    }

    /// Memory taken, in bytes, without what elements point to.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.len() * PAGE as usize * size_of::<T>()
            + self.pages.capacity() * size_of::<Box<[T; PAGE as usize]>>()
    }
}
