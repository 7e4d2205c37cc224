//! What was measured several times.

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample(Vec<f64>);

impl Sample {
    pub fn add(&mut self, value: f64) {
        let at = self.0.partition_point(|other| other.total_cmp(&value).is_lt());
        self.0.insert(at, value);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The middle one; of an even number the lower. NaN if nothing was measured.
    pub fn median(&self) -> f64 {
        self.0.get(self.0.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
    }

    pub fn least(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }

    pub fn most(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }

    /// How far apart the outermost are, as a part of the median.
    pub fn spread(&self) -> f64 {
        (self.most() - self.least()) / self.median()
    }
}

impl FromIterator<f64> for Sample {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Sample {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Sample(values)
    }
}

#[cfg(test)]
mod tests {
    use super::Sample;

    #[test]
    fn medians_and_spreads() {
        let mut sample = Sample::default();
        assert!(sample.is_empty() && sample.median().is_nan() && sample.spread().is_nan());
        [3.0, 1.0, 2.0].into_iter().for_each(|value| sample.add(value));
        assert_eq!((sample.least(), sample.median(), sample.most()), (1.0, 2.0, 3.0));
        assert_eq!(sample.spread(), 1.0);
        sample.add(4.0);
        assert_eq!(sample.median(), 2.0);
    }
}
