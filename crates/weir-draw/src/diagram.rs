//! What is to be seen, before it has a place.

use crate::DrawError;

/// A shape's number in its [`Diagram`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapeId(pub(crate) usize);

/// A group's number in its [`Diagram`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupId(pub(crate) usize);

/// What a shape stands for, which decides its form and colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Where packets come in or leave.
    Port,
    /// What works on packets.
    Work,
    /// What stands for several that were merged.
    Merged,
    /// What was taken out: drawn pale and dashed.
    Removed,
    /// Where packets end.
    Drop,
    /// Where packets are copied.
    Copy,
}

/// How an arrow is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// An ordinary one: a way of packets.
    Solid,
    /// A ring between processes.
    Dashed,
    /// A way that was taken out.
    Pale,
}

/// A box of the drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    pub(crate) title: String,
    pub(crate) under: String,
    pub(crate) look: Look,
    pub(crate) group: Option<GroupId>,
    pub(crate) notes: Vec<String>,
    pub(crate) hover: String,
}

impl Shape {
    /// A shape with a title and a line under it (which may be empty).
    #[must_use]
    pub fn new(title: &str, under: &str, look: Look) -> Self {
        Shape {
            title: title.to_owned(),
            under: under.to_owned(),
            look,
            group: None,
            notes: Vec::new(),
            hover: String::new(),
        }
    }

    /// With another look.
    #[must_use]
    pub fn looking(mut self, look: Look) -> Self {
        self.look = look;
        self
    }

    /// With another title.
    #[must_use]
    pub fn titled(mut self, title: &str) -> Self {
        title.clone_into(&mut self.title);
        self
    }

    /// Puts it into a group.
    #[must_use]
    pub fn within(mut self, group: GroupId) -> Self {
        self.group = Some(group);
        self
    }

    /// Adds a small line below the others.
    #[must_use]
    pub fn note(mut self, note: &str) -> Self {
        self.notes.push(note.to_owned());
        self
    }

    /// A text that shows when the pointer rests on it.
    #[must_use]
    pub fn hover(mut self, hover: &str) -> Self {
        hover.clone_into(&mut self.hover);
        self
    }
}

/// A way from one shape to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrow {
    pub(crate) from: ShapeId,
    pub(crate) to: ShapeId,
    pub(crate) label: String,
    pub(crate) line: Line,
}

impl Arrow {
    /// A solid arrow without a label.
    #[must_use]
    pub fn new(from: ShapeId, to: ShapeId) -> Self {
        Arrow { from, to, label: String::new(), line: Line::Solid }
    }

    /// With a label.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        label.clone_into(&mut self.label);
        self
    }

    /// Drawn otherwise.
    #[must_use]
    pub fn line(mut self, line: Line) -> Self {
        self.line = line;
        self
    }
}

/// A drawing before it is laid out: shapes, frames around some of them, arrows.
#[derive(Clone, Debug, Default)]
pub struct Diagram {
    pub(crate) title: String,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) groups: Vec<String>,
    pub(crate) arrows: Vec<Arrow>,
}

impl Diagram {
    /// An empty one.
    #[must_use]
    pub fn new(title: &str) -> Self {
        Diagram { title: title.to_owned(), ..Diagram::default() }
    }

    /// Adds a frame; shapes are put into it by [`Shape::within`]. A drawing of very many frames is made
    /// without them.
    pub fn group(&mut self, title: &str) -> GroupId {
        self.groups.push(title.to_owned());
        GroupId(self.groups.len().saturating_sub(1))
    }

    /// Adds a shape.
    pub fn shape(&mut self, shape: Shape) -> ShapeId {
        self.shapes.push(shape);
        ShapeId(self.shapes.len().saturating_sub(1))
    }

    /// Adds an arrow.
    pub fn arrow(&mut self, arrow: Arrow) {
        self.arrows.push(arrow);
    }

    /// The drawing for Graphviz, of any size.
    #[must_use]
    pub fn to_dot(&self) -> String {
        crate::dot::write(self)
    }

    /// The drawing as a complete SVG document, packets flowing from left to right.
    ///
    /// # Errors
    /// When there is too much to draw.
    pub fn to_svg(&self) -> Result<String, DrawError> {
        let placed = crate::place::place(self)?;
        Ok(crate::svg::write(self, &placed))
    }
}
