-- Speech tokens were a list for each segment. Now each has the silence around it; of before only the usual one is known.
UPDATE take SET spoken = (
    SELECT json_group_array(json_object(
        'tokens', json(value), 'pause_s', CASE key WHEN 0 THEN 0.0 ELSE 0.15 END, 'pause_after_s', 0.0
    ))
    FROM (SELECT key, value FROM json_each(take.spoken) ORDER BY key)
);
