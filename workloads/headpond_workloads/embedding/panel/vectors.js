// What can be seen of vectors: how alike they are, and where they lie in a plane.

const ROUNDS = 100;
const STILL = 1e-9;

/** Return the cosine of each pair. */
export function similarities(vectors) {
  const lengths = vectors.map((vector) => Math.sqrt(dot(vector, vector)) || 1);
  return vectors.map((one, i) =>
    vectors.map((other, j) => dot(one, other) / (lengths[i] * lengths[j])),
  );
}

/** Return each vector's place along the two directions in which they differ most (PCA). */
export function plane(vectors) {
  // The Gram matrix is as large as there are texts; the covariance would be 384 by 384.
  const gram = centred(vectors.map((one) => vectors.map((other) => dot(one, other))));
  const total = gram.reduce((sum, row, at) => sum + row[at], 0);
  const axes = [];
  for (let axis = 0; axis < 2; axis += 1) {
    const { value, vector } = leading(gram, axis);
    axes.push({ places: vector.map((each) => each * Math.sqrt(value)), value });
    for (let i = 0; i < gram.length; i += 1) {
      for (let j = 0; j < gram.length; j += 1) gram[i][j] -= value * vector[i] * vector[j];
    }
  }
  return {
    points: vectors.map((_, at) => axes.map(({ places }) => places[at])),
    explained: total > STILL ? axes.map(({ value }) => value / total) : [0, 0],
  };
}

/** Return the leading eigenvalue and eigenvector of a matrix that has no negative one. */
function leading(matrix, axis) {
  let vector = matrix.map((_, at) => Math.cos((at + 1) * (axis + 1))); // along no axis
  let value = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const next = matrix.map((row) => dot(row, vector));
    const length = Math.sqrt(dot(next, next));
    if (length < STILL) return { value: 0, vector: matrix.map(() => 0) };
    vector = next.map((each) => each / length);
    if (Math.abs(length - value) < STILL * length) break;
    value = length;
  }
  return { value, vector };
}

/** Return the inner products as they are when the mean is subtracted from each vector. */
function centred(gram) {
  const means = gram.map((row) => row.reduce((sum, each) => sum + each, 0) / row.length);
  const mean = means.reduce((sum, each) => sum + each, 0) / means.length;
  return gram.map((row, i) => row.map((each, j) => each - means[i] - means[j] + mean));
}

function dot(one, other) {
  let sum = 0;
  for (let at = 0; at < one.length; at += 1) sum += one[at] * other[at];
  return sum;
}
