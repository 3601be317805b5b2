//! Charts of measurements ([`chart`]), and layered drawings of directed graphs as SVG (and as DOT, for whoever has Graphviz): a pure function from what is to be seen to a picture,
//! without an outside program and without a script in it.
//!
//! ```
//! use weir_draw::{Arrow, Diagram, Look, Shape};
//!
//! let mut diagram = Diagram::new("a chain");
//! let lan = diagram.shape(Shape::new("lan", "port 0", Look::Port));
//! let swap = diagram.shape(Shape::new("x", "MacSwap", Look::Work));
//! diagram.arrow(Arrow::new(lan, swap).label("tcp port 80"));
//! let svg = diagram.to_svg()?;
//! assert!(svg.starts_with("<svg"));
//! # Ok::<(), weir_draw::DrawError>(())
//! ```
//!
//! Places are found by `dagre`, after Gansner et al., "A Technique for Drawing Directed Graphs" (1993)
//! and Brandes and Köpf, "Fast and Simple Horizontal Coordinate Assignment" (2001).

pub mod chart;
mod diagram;
mod dot;
mod place;
mod svg;

pub use diagram::{Arrow, Diagram, GroupId, Line, Look, Shape, ShapeId};

/// The most shapes and arrows of a drawing, together: more is neither read by anybody nor laid out
/// in seconds.
pub const MOST: usize = 1_000;

/// Why there is no drawing.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum DrawError {
    /// Too much to draw.
    #[error(
        "{count} shapes and arrows are too many for a drawing (at most {MOST}); ask for text, DOT or JSON"
    )]
    TooMuch {
        /// Shapes and arrows.
        count: usize,
    },
    /// The layout found no place for something.
    #[error("the layout has no place for {0}; ask for text, DOT or JSON")]
    NoPlace(String),
}
