//! An array that grows without ever being copied.

/// Elements by number, in pages: a plain vector would be copied whole whenever it doubles, which at
/// millions of flows is a pause, and needs thrice the memory for that moment. Pages are made as they are used, in any order. Growing by one
/// costs as much as making a page of `PAGE` elements, and to drop them all costs something for each.
pub(crate) struct Paged<T, const PAGE: usize = 64> {
    pages: Vec<Option<Box<[T; PAGE]>>>,
    made: usize,
}

impl<T, const PAGE: usize> Default for Paged<T, PAGE> {
    fn default() -> Self {
        Paged { pages: Vec::new(), made: 0 }
    }
}

impl<T: Default, const PAGE: usize> Paged<T, PAGE> {
    #[inline]
    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        self.pages.get(at as usize / PAGE)?.as_ref()?.get(at as usize % PAGE)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.pages.get_mut(at as usize / PAGE)?.as_mut()?.get_mut(at as usize % PAGE)
    }

    /// The element `at`, which is made when there is none; and so are those of the same page.
    #[inline]
    pub(crate) fn reach(&mut self, at: u32) -> Option<&mut T> {
        let page = at as usize / PAGE;
        if self.pages.get(page).is_none_or(Option::is_none) {
            self.make(page);
        }
        self.get_mut(at)
    }

    #[cold]
    fn make(&mut self, page: usize) {
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let made: Box<[T]> = (0..PAGE).map(|_| T::default()).collect();
        if let Some(place) = self.pages.get_mut(page) {
            // It has just so many.
            *place = made.try_into().ok();
            self.made += 1;
        }
    }

    /// Memory taken, in bytes, without what elements point to.
    pub(crate) fn bytes(&self) -> usize {
        self.made * PAGE * size_of::<T>()
            + self.pages.capacity() * size_of::<Option<Box<[T; PAGE]>>>()
    }
}
