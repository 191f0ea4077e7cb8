package modeldir

// fromONNX reads onnx_config.json, which exporters write beside a graph.
func (r *reader) fromONNX() error {
	f := r.onnx
	if f == nil {
		return nil
	}
	if err := firstError(
		r.queryMarker().from(f, r.tokenID, "query_prefix_id"), r.queryMarker().from(f, r.marker, "query_prefix"),
		r.documentMarker().from(f, r.tokenID, "document_prefix_id"), r.documentMarker().from(f, r.marker, "document_prefix"),
		r.mask().from(f, r.tokenID, "mask_token_id"),
		r.queryLength().from(f, size, "query_length"), r.documentLength().from(f, size, "document_length"),
		r.attend().from(f, (*file).bool, "attend_to_expansion_tokens"), r.dim().from(f, (*file).size1, "embedding_dim"),
		r.skip().from(f, words, "skiplist_words"),
	); err != nil {
		return err
	}
	// Its do_query_expansion is false whatever the model was trained with, and
	// so no contradiction; see defaults.
	on, ok, err := f.bool("do_query_expansion")
	if err != nil {
		return err
	}
	r.onnxSaysExpand = on || !ok
	if s := r.expand(); ok && on && s.decided() {
		return s.say(f, "do_query_expansion", on)
	}
	return nil
}
