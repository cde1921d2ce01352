//! A dense array of f64, addressed by index.

#[derive(Clone, Debug)]
pub struct Nd {
    pub dims: Vec<usize>,
    /// Row-major.
    pub at: Vec<f64>,
}

impl Nd {
    /// The array whose element at each index is what `f` says.
    pub fn from_fn(dims: &[usize], mut f: impl FnMut(&[usize]) -> f64) -> Nd {
        let mut at = Vec::new();
        let mut index = vec![0; dims.len()];
        for _ in 0..dims.iter().product() {
            at.push(f(&index));
            for axis in (0..dims.len()).rev() {
                index[axis] += 1;
                if index[axis] < dims[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
        Nd { dims: dims.to_vec(), at }
    }

    pub fn get(&self, index: &[usize]) -> f64 {
        assert_eq!(index.len(), self.dims.len(), "rank of the index");
        let flat = index.iter().zip(&self.dims).fold(0, |flat, (&i, &dim)| {
            assert!(i < dim, "{index:?} in {:?}", self.dims);
            flat * dim + i
        });
        self.at[flat]
    }

    /// The element at a signed index, `None` outside.
    pub fn inside(&self, index: &[i64]) -> Option<f64> {
        let inside = index.iter().zip(&self.dims).all(|(&i, &dim)| i >= 0 && i < dim as i64);
        inside.then(|| self.get(&index.iter().map(|&i| i as usize).collect::<Vec<_>>()))
    }

    /// The element that `index` of a larger array meets by broadcasting.
    pub fn broadcast(&self, index: &[usize]) -> f64 {
        let tail = &index[index.len() - self.dims.len()..];
        let own: Vec<usize> =
            tail.iter().zip(&self.dims).map(|(&i, &dim)| if dim == 1 { 0 } else { i }).collect();
        self.get(&own)
    }

    pub fn map(&self, f: impl Fn(f64) -> f64) -> Nd {
        Nd { dims: self.dims.clone(), at: self.at.iter().map(|&x| f(x)).collect() }
    }

    /// The axes in another order: axis `i` of the result is axis `order[i]` of this.
    pub fn permuted(&self, order: &[usize]) -> Nd {
        let dims: Vec<usize> = order.iter().map(|&o| self.dims[o]).collect();
        Nd::from_fn(&dims, |i| {
            let mut from = vec![0; i.len()];
            order.iter().zip(i).for_each(|(&o, &i)| from[o] = i);
            self.get(&from)
        })
    }

    /// An NHWC array as NCHW if `nchw`.
    pub fn laid_out(&self, nchw: bool) -> Nd {
        if nchw {
            self.permuted(&[0, 3, 1, 2])
        } else {
            self.clone()
        }
    }
}
