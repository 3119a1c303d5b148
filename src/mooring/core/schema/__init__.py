"""JSON Schema -> the subset that a model provider accepts; the model's arguments -> those of the server.

    compiled = compile_schema(tool.input_schema, "openai-strict")
    compiled.schema                 # for the provider
    compiled.back(arguments)        # for the server
    compiled.notes                  # what was changed or lost, as text

`compile` reads a schema into a `Shape` (`shapes`). `write` writes it in a dialect (`dialects`), with a plan
that converts arguments back. What a dialect cannot express becomes looser, or JSON written as text, or part
of a description; the server still checks its arguments. A schema that no dialect can express raises
`SetAside`: `compile_tools` leaves that tool out and keeps the others. `validate` checks values.

    dialect         rule                                                           known from
    all             root: type object, no anyOf/oneOf/allOf/enum/const/not         OpenAI, Anthropic (errors)
    all             objects have properties, arrays have items                     OpenAI's errors
    all             no $ref: references are inlined                                Anthropic's docs, Gemini
    all             no pattern: one that a provider cannot read fails the request  OpenAI's errors
    anthropic       names of members ^[a-zA-Z0-9_.-]{1,64}$                        Anthropic's errors
    openai-strict   objects closed, all members required, optional = nullable      Structured Outputs guide
    openai-strict   keywords: numeric bounds, multipleOf, min/maxItems, format     Structured Outputs guide
    openai-strict   10 levels; 5,000 properties; 1,000 fixed values;               Structured Outputs guide
                    120,000 characters of names and values; a list of more than
                    250 values at most 15,000 characters
    gemini          fields of google.genai.types.Schema; one type per node         SDK, Gemini's errors
    gemini          names of members [a-zA-Z_][a-zA-Z0-9_]{0,63}                   SDK (FunctionDeclaration)
    gemini          enum: strings only; required: declared members only            Gemini's errors
    gemini          format: date-time; int32, int64; float, double                 Gemini's errors
    gemini          no keywords beside anyOf; nested objects have members          Vertex AI, Gemini (errors)
    plain           one type per node, or that type and null; nothing exotic       part of all but Gemini's

Free-form objects and open values are JSON text where a dialect has no schema for them (`openai-strict`,
`gemini`, and open values in `plain`): the model writes JSON into a string, and `back` parses it.
In `openai-strict` a null for an optional member means that it is not given and is dropped, unless the
server's schema allows null there.
"""
