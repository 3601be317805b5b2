//! The instance graph as text.

use std::fmt::{self, Write};

use super::{Estimate, Instances, Key, MAX_INSTANCES, Over, SizedEdge, SizedNf, Way};

impl Instances {
    /// NFs with their instances, then edges with their traffic and how packets find their instance.
    #[must_use]
    pub fn to_text(&self) -> String {
        let Instances { ghz, cores, cores_needed, packet_bytes, nfs, edges } = self;
        // Writing to a string cannot fail: here and below.
        let mut out = format!("instances at {ghz:.1} GHz\n");
        for nf in nfs {
            let _ = writeln!(out, "  {}: {nf}", nf.name);
        }
        let enough = if cores_needed > cores { ": too few" } else { "" };
        let _ = writeln!(out, "cores for NFs: {cores_needed} needed, {cores} there{enough}");
        let _ = writeln!(out, "traffic, packets of {packet_bytes} bytes where bits are given");
        for edge in edges {
            let _ = writeln!(out, "  {}: {edge}", edge.name);
        }
        out
    }

    /// What the NFs cannot carry, as warnings. Too few cores are none: the machine that a policy is looked at
    /// on need not be the one that runs it.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.nfs.iter().filter_map(|nf| {
            let machine = |over: &Over| matches!(over, Over::Cores { .. } | Over::OneWorker { .. });
            let over = nf.over.filter(|over| !machine(over))?;
            Some(format!(
                "{}: {} are expected and a core manages {}: {over}",
                nf.name,
                mpps(nf.pps.unwrap_or(0.0)),
                mpps(nf.core_pps)
            ))
        })
    }
}

/// Packets per second in Mpps.
pub(crate) fn mpps(pps: f64) -> String {
    if pps > 0.0 && pps < 10_000.0 {
        format!("{pps:.0} pps")
    } else {
        format!("{:.2} Mpps", pps / 1e6)
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Over::OneOnly { needed } => write!(
                f,
                "{needed} instances would do, but its description allows one; say `scaling` there, or send it less"
            ),
            Over::TooMany { needed } => write!(
                f,
                "{needed} instances would do, and {MAX_INSTANCES} are the most; send it less, or make it cheaper"
            ),
            Over::Cores { needed } => write!(
                f,
                "{needed} instances would do, but there are not so many cores for NFs; give more (`--cores`, or the hardware's), or send it less"
            ),
            Over::OneWorker { needed } => write!(
                f,
                "{needed} instances would do, but all NFs share one worker (`--isolate none`)"
            ),
        }
    }
}

impl fmt::Display for SizedNf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.count == 1 { "" } else { "s" };
        write!(f, "{} instance{plural}", self.count)?;
        let least = self.asked.as_ref().is_some_and(|asked| asked.least_loaded);
        match self.split {
            Some(split) if split.key == Key::Any && least => {
                f.write_str(", divided to the least loaded")?;
            }
            Some(split) => write!(f, ", divided {}", split.key)?,
            None => {}
        }
        if let Some(asked) = self.asked.as_ref().filter(|asked| asked.scales) {
            let least = asked.weights.iter().filter(|weight| **weight > 0).count();
            write!(f, ", of which {least} at first, more and fewer by load")?;
        } else if let Some(asked) = &self.asked {
            f.write_str(", as asked for")?;
            if asked.weights.iter().any(|weight| Some(weight) != asked.weights.first()) {
                let weights: Vec<_> = asked.weights.iter().map(u32::to_string).collect();
                write!(f, ", by weights {}", weights.join(":"))?;
            }
        }
        match self.pps {
            Some(pps) => write!(f, "; {}, a core manages {}", mpps(pps), mpps(self.core_pps))?,
            None => write!(f, "; traffic not stated, a core manages {}", mpps(self.core_pps))?,
        }
        match &self.over {
            Some(over) => write!(f, "; too little: {over}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for SizedEdge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pps, self.estimate) {
            (Some(pps), Estimate::Stated) => write!(f, "{} as stated", mpps(pps))?,
            (Some(pps), _) => write!(f, "{} by even spread", mpps(pps))?,
            (None, _) => f.write_str("not stated")?,
        }
        match self.way {
            Way::Single => Ok(()),
            Way::Hashed(key) => write!(f, ", divided {key}"),
            Way::Direct(key) => write!(f, ", straight on: divided {key} before"),
        }
    }
}
