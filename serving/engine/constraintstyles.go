package engine

import "millrace/serving/engine/scan"

// A constraintStyle appends a constraint, after a comma, as one family takes it.
type constraintStyle func(dst []byte, c *constraint) ([]byte, error)

// Every style is tried only after response_format was found absent or "text", so that it may write one.

// vllmConstraints are the members of vLLM's structured_outputs.
func vllmConstraints(dst []byte, c *constraint) ([]byte, error) {
	if c.wholeIs(structuredOutputs) {
		return append(append(dst, ','), c.whole...), nil
	}
	for name, kind := range structuredNames {
		if kind == c.kind {
			dst = append(append(append(dst, `,"structured_outputs":{"`...), name...), `":`...)
			return append(append(dst, c.value...), '}'), nil
		}
	}
	return dst, c.unsupported()
}

// sglangConstraints are regex and ebnf; JSON goes by response_format.
func sglangConstraints(dst []byte, c *constraint) ([]byte, error) {
	switch c.kind {
	case byJSON, byJSONObject:
		return jsonFormat(dst, c), nil
	case byRegex:
		return append(append(dst, `,"regex":`...), c.value...), nil
	case byChoice:
		return scan.Quote(append(dst, `,"regex":`...), c.alternatives()), nil
	case byGrammar:
		return append(append(dst, `,"ebnf":`...), c.value...), nil
	}
	return dst, c.unsupported()
}

// trtllmConstraints are all kinds of response_format.
func trtllmConstraints(dst []byte, c *constraint) ([]byte, error) {
	switch c.kind {
	case byJSON, byJSONObject:
		return jsonFormat(dst, c), nil
	case byRegex:
		dst = append(append(dst, `,"response_format":{"type":"regex","regex":`...), c.value...)
	case byChoice:
		dst = scan.Quote(append(dst, `,"response_format":{"type":"regex","regex":`...), c.alternatives())
	case byGrammar:
		dst = append(append(dst, `,"response_format":{"type":"ebnf","ebnf":`...), c.value...)
	default:
		return dst, c.unsupported()
	}
	return append(dst, '}'), nil
}

// llamaConstraints are grammars; JSON goes by response_format.
func llamaConstraints(dst []byte, c *constraint) ([]byte, error) {
	switch c.kind {
	case byJSON, byJSONObject:
		return jsonFormat(dst, c), nil
	case byGrammar:
		return append(append(dst, `,"grammar":`...), c.value...), nil
	case byChoice:
		return scan.Quote(append(dst, `,"grammar":`...), c.rule()), nil
	}
	return dst, c.unsupported()
}

// plainConstraints are for servers of which nothing is known but OpenAI's dialect: JSON in its form, the rest as sent.
func plainConstraints(dst []byte, c *constraint) ([]byte, error) {
	switch c.kind {
	case byJSON, byJSONObject:
		return jsonFormat(dst, c), nil
	}
	return append(append(dst, ','), c.whole...), nil
}

// jsonFormat is OpenAI's response_format. The schema's name is of no use but required.
func jsonFormat(dst []byte, c *constraint) []byte {
	if c.kind == byJSONObject {
		return append(dst, `,"response_format":{"type":"json_object"}`...)
	}
	dst = append(dst, `,"response_format":{"type":"json_schema","json_schema":{"name":"answer","schema":`...)
	return append(append(dst, c.value...), "}}"...)
}

func (c *constraint) wholeIs(name string) bool {
	return len(c.whole) > len(name)+1 && string(c.whole[1:len(name)+1]) == name && c.whole[len(name)+1] == '"'
}
