package index

import "github.com/plaid-ir/plaid/codec"

// Drift says how well the codec of an index fits what was added to it since it was
// trained.
type Drift struct {
	// Trained is how many tokens the index had when its codec was trained; 0: it was not
	// trained, or it is not known.
	Trained uint64 `json:"trained_tokens"`
	// TrainRMSE is the root mean square error of decoded vectors of the training sample;
	// 0: it is not known.
	TrainRMSE float64 `json:"train_rmse"`
	// Added is how many tokens were added since, those deleted again included, AddedRMSE
	// their error.
	Added     uint64  `json:"added_tokens"`
	AddedRMSE float64 `json:"added_rmse"`
	// Ratio of the two errors; 0 where one is not known. Documents like those of the
	// training have 1.1 to 1.4, those of another kind 2 and more.
	Ratio float64 `json:"ratio"`
	// Centroids is how many the index has, Wanted how many a build would train for as
	// many tokens as there are now.
	Centroids int `json:"centroids"`
	Wanted    int `json:"wanted_centroids"`
}

// Drift of the index; it costs nothing.
func (s *Snapshot) Drift() Drift {
	h, st := s.Header(), s.State()
	d := Drift{
		Trained: h.Build.Tokens, TrainRMSE: h.Build.RMSE, Added: st.AddedTokens, AddedRMSE: rmse(st.AddedSumSq, int64(st.AddedTokens)),
		Centroids: h.Centroids, Wanted: codec.DefaultK(int64(st.LiveTokens)),
	}
	if d.TrainRMSE > 0 && d.Added > 0 {
		d.Ratio = d.AddedRMSE / d.TrainRMSE
	}
	return d
}
